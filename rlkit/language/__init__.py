"""The language room: a native decoder, its tokenizer, generation, and log-probabilities in chunks."""
