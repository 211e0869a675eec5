"""Corrupted data sets in the layout of the public downloads, made from the clean ones."""
