"""One module per family of data sets; each registers its own, and all are imported by name."""
