"""``hooktrace compare``: what differs between runs, by how much, and what accounts for it.

    record files of two runs --measure.py, run/parts.py--> Measures: a number a step, ranks averaged
    Measures of both --comparison.py--> Comparison --view.py--> text, page; or JSON

``compare_runs`` is a pure function of ``Measures``, which are small, so that whoever has them from
elsewhere compares them the same way.  No torch.
"""

from __future__ import annotations

from .comparison import Comparison, compare_runs
from .measure import Measures, measure

__all__ = ["Comparison", "Measures", "compare_runs", "measure"]
