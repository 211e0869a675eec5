"""Readers of the file formats in which public data sets arrive.

Each takes a path and gives NumPy arrays. Files are treated as hostile: a reader never executes
what it reads, never allocates more than the file can justify, and answers anything malformed with
a `ValueError` that names the file.
"""
