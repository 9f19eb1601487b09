"""``hooktrace top``: the whole job, live in a terminal.

    the hub --JobSnapshot, each second--> live.py --View, snapshot (picture.py)--> the terminal
    keys.py --key--> the next View

What to ask of ranks, as their stacks, is ``hooktrace ctl``.
"""

from __future__ import annotations

from .live import run_top

__all__ = ["run_top"]
