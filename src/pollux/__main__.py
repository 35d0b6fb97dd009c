"""``python -m pollux`` is the command line."""

import sys

from pollux.cli import main

if __name__ == "__main__":
    sys.exit(main())
