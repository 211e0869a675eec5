"""The benchmark: plan a sweep as cells, run them anywhere, store every result exactly once."""
