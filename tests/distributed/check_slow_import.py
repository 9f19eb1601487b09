"""A module that never finishes importing, for ``test_check.py``."""

import time

time.sleep(1000)
