"""``python -m khot``; the commands are in `khot.cli`."""

import sys

from khot.cli import main

if __name__ == "__main__":
    sys.exit(main())
