"""What a step of a language model takes of time and memory on so many GPUs, predicted from its shape."""
