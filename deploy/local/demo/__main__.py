"""Entry point of `python -m demo`."""

import sys

from demo.story import main

sys.exit(main())
