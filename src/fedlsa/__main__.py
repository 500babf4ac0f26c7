"""`python -m fedlsa` is the command `fedlsa`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
