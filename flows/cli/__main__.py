"""`python -P -m flows.cli`: the same as `headway`."""

import sys

from flows.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
