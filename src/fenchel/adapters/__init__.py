"""The adapter: a pure step around a model that is never modified."""
