"""``hooktrace bench``: what tracing costs on this machine.

    cost.py --processes of their own (../ranks.py)--> samples --table.py--> rows: median, interval

Each number is a ratio or a difference of two things measured side by side in one run.  A row is
printed as soon as it is measured.  A benchmark reports; it never fails a build.
"""

from __future__ import annotations

from .cost import run

__all__ = ["run"]
