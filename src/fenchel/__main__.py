"""`python -m fenchel` is the same as `fenchel`."""

from fenchel.cli import main

if __name__ == "__main__":
    main()
