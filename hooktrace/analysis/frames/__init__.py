"""``hooktrace.load``: a run as data frames, for notebooks and scripts.

In go the record files of one run; out come frames of pandas or Polars, and a picture of a step.

    Timeline --columns.py says which, of what type--+
             --tables.py--> Table: numpy columns and where each is known --run.py--> frames
             --picture.py--> one step on all ranks, an image that needs nothing around it
             --report--> facts and findings
                 +--run.py: Run, what a user has in hand

pandas and Polars are imported when a frame is asked for, and torch never.
"""

from __future__ import annotations

from .run import Run as Run
from .run import load as load
