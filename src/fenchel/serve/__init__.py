"""Streams served over HTTP on Ray Serve: `fenchel serve`."""
