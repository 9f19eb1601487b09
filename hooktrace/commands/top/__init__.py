"""``hooktrace top``: the whole job, live in a terminal.

    the hub --JobSnapshot, each second (live.py)--> Picture (picture.py)--> the terminal
      --when torch's debug server asks--> debug_page.py

What to ask of ranks, as their stacks, is ``hooktrace ctl``.
"""

from __future__ import annotations

from .live import run_top

__all__ = ["run_top"]
