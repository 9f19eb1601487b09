"""Runs that one machine cannot read: a small summary of each rank, and summaries merged.

In go the files of one rank at a time, wherever; out comes the same kind of report, less what only
all ranks' columns side by side could tell, which it names.

    files of one rank --rank_summary.py, a pure function--> Summary --+
    files of another  ------------------------------------> Summary --+--merged in any order--+
        summary.py: what it holds                                                             |
        sketch.py: percentiles, race.py: who was last    RunReport <--report.py, late.py-- Summary
        engines.py: local processes, Dask or Ray run the function; command.py: --on

Merging is associative and commutative: sums, minima, maxima, the two latest of all ranks for each
bucket of each step, and KLL sketches, whose percentiles are within ``sketch.RANK_ERROR`` however
they were merged.  A summary's size does not depend on how many ranks are in it, but for a line
each.
"""

from __future__ import annotations

from .engines import summaries_on as summaries_on
from .rank_summary import summarize as summarize
from .report import report_of as report_of
from .summary import Job as Job
from .summary import Summary as Summary
