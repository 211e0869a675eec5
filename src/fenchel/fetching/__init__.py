"""Getting files that others publish: downloads that resume, packages as mirrors, safe archives, checksums."""
