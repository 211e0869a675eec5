"""Data sets, corruptions and streams."""
