"""``hooktrace demo``: N ranks train a small language model under DDP, traced.

    DemoOptions --run.py--> checked --> ranks: train.py, with all exporters --> files, metrics
                        <-- RankResult --> what the ranks saw, and what to open next

``language_model.py`` is what is trained, on what.
"""

from __future__ import annotations

from .run import run
from .train import DemoOptions

__all__ = ["DemoOptions", "run"]
