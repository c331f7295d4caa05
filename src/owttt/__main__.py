"""`python -m owttt` is `owttt`."""

import sys

from owttt.cli import main

sys.exit(main())
