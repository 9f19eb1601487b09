"""One run, all ranks: the only reader of record files, and the only place that knows a definition.

In go the record files of each rank; out comes a ``Run``, of which report, comparison, Comm
Timeline, Perfetto file and data frames are views.

    files.py    record files of a run, found and read, by any engine
    read.py     lines --> columns (columns.py) of one rank: a RankTrack
    follow.py   the same while files grow
    clock.py    a rank's host times in rank 0's; the only place that adds offsets
    run.py      the tracks of one run side by side: Run
    missing.py  what their files do not say
    hangs.py    who waited for whom, and whether it went on
    counts.py   which steps count, and why the others do not
    waits.py    what of a collective was waiting for its last rank, and what is transfer
    tables.py   a run as tables, handed out as data frames; rows.py: what makes a column
    others.py   what else communicates: collectives of no traced model
    dense.py    the steps that count as arrays (rank, step, bucket): StepArrays
    parts.py    where the time of a step goes, in parts that add up to it
    source.py   what a model of a run is: its hook, which of its steps, a number a step
    order.py    who was ready last, how often, and who is late often enough to be named
    scene.py    one model's ranks ready to be drawn, as Comm Timeline and Perfetto file have them
    bootstrap.py  intervals of what is measured in every step, where steps are not independent

Functions of their input, without torch.  A million buckets are a few arrays, not a million objects.
"""

from __future__ import annotations

from .columns import FLAGS as FLAGS
from .columns import UNKNOWN as UNKNOWN
from .columns import Ints as Ints
from .columns import RankTrack as RankTrack
from .counts import COUNTS as COUNTS
from .counts import REASONS as REASONS
from .counts import reasons as reasons
from .files import load as load
from .follow import TrackFollower as TrackFollower
from .follow import read_in_turns as read_in_turns
from .hangs import Hang as Hang
from .hangs import hangs as hangs
from .order import delays as delays
from .run import Run as Run
from .run import run_of as run_of
