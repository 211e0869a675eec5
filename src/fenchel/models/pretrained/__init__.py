"""Trained networks that others publish: fetched by name, read without running code, not in the wheel."""
