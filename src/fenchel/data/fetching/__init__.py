"""Data sets by name: fetched, and checked where they are."""
