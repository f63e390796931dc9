"""`python -m detent`."""

import sys

from detent.cli.main import main

sys.exit(main())
