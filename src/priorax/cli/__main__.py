"""`python -m priorax.cli`."""

import sys

from priorax.cli import main

sys.exit(main())
