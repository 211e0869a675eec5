"""Unsupervised objectives: one value a sample, from logits alone."""
