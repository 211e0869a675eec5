"""Training of source models."""
