"""``python -m pollux`` is the command line."""

import sys

from pollux.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
