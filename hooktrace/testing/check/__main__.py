"""``python -m hooktrace.testing.check DIRECTORY``: the host, started by ``launch.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from .host import main

sys.exit(main(Path(sys.argv[1])))
