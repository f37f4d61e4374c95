"""`python -m cowstate`."""

import sys

from cowstate.cli.command_line import main

sys.exit(main())
