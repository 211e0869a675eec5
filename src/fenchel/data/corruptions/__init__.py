"""The nineteen common corruptions."""
