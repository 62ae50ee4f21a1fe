"""Predicts time and memory of a training step of a language model on GPUs, from the model's shape."""
