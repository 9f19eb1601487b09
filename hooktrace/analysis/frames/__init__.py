"""``hooktrace.load``: a run as tables, for notebooks and scripts.

In go the record files of one run; out come tables, which pandas, Polars and Arrow take.

    Run --columns.py, run/bucket_table.py: each column and how it is made--> numpy columns and where
                  each is known --table.py--> Table
             --report--> facts and findings
                 +--run.py: Run, what a user has in hand

pandas, Polars and pyarrow are imported when a frame is asked for, and torch never.
"""

from __future__ import annotations

from .run import Run as Run
from .run import load as load
from .table import Table as Table
