"""The main job: N ranks train a small language model under DDP, traced.

``options`` checks what was asked for before anything starts, ``launch`` starts the ranks with
torch's elastic launcher and reports how they ended, ``train`` is one rank (``model``, ``text``,
traced hook, exporters, the loop), ``screen`` its progress line, which is an exporter like the
others, ``report`` prints the tables at the end, and ``hold`` serves the recorded metrics again for
a scraper that comes late.
"""

from __future__ import annotations

from .launch import run
from .options import DemoOptions

__all__ = ["DemoOptions", "run"]
