"""What a step of a language model takes of time and memory on so many GPUs, foretold from its shape."""
