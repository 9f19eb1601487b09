"""``hooktrace.load``: a run as tables, for notebooks and scripts.

In go the record files of one run; out come tables, which pandas, Polars and Arrow take.

    Run --columns.py, run/bucket_table.py: each column and how it is made--> numpy columns and where
                  each is known --run.py--> Run, what a user has in hand: Tables, and the report
"""

from __future__ import annotations

from .run import Run as Run
from .run import Table as Table
from .run import load as load
