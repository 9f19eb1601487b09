"""``hooktrace demo``: N ranks train a small language model under DDP, traced.

    DemoOptions --launch--> ranks: train() --> exporters --> files, metrics
    (options.py) (launch.py)  (train.py)   --> screen.py      progress
                              <-- RankResult --> closing.py   tables, what to open next, and the
                                                              metrics served again, on demand

Options are checked before anything starts.  ``language_model.py`` is what is trained, on what.
"""

from __future__ import annotations

from .launch import run
from .options import DemoOptions

__all__ = ["DemoOptions", "run"]
