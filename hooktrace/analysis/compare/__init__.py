"""``hooktrace compare``: what differs between runs, by how much, and what accounts for it.

In go the record files of two or more runs; out come differences with intervals, a sentence, and
what makes them doubtful, as text, as a page, or as JSON.

    Run --measure.py, run/parts.py--> Measures: a number a step, ranks put together
                                               v
    Measures of both runs --differences.py--> Comparison (comparison.py: the structs) --view.py-->
        run/bootstrap.py: medians, differences, intervals
        doubts.py: how far they can be compared; sentence.py

``compare_runs`` is a pure function of ``Measures``, which are small, so that whoever has them from
elsewhere compares them the same way.
``command.py`` is what the command line calls.  No torch.
"""

from __future__ import annotations

from .comparison import Comparison, Difference
from .differences import compare_runs
from .measure import Measures, measure

__all__ = ["Comparison", "Difference", "Measures", "compare_runs", "measure"]
