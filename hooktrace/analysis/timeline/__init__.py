"""All ranks in one picture: record files of many ranks as columns, in one clock.

In go the record files of each rank; out comes a Timeline, which report, Perfetto file and tab read.

    rank00000.jsonl --read_columns.py--> RankTrack (columns.py) --+
    rank00001.jsonl --follow.py, as it grows--> RankTrack --------+--merge.py--> Timeline
                      read_aside.py: in processes                 |
            ...                              arrivals.py: who was ready last <------+

Functions of their input, without torch.  A million buckets are a few arrays, not a million objects.
"""

from __future__ import annotations

from .arrivals import Arrivals as Arrivals
from .arrivals import arrivals as arrivals
from .arrivals import bucket_keys as bucket_keys
from .arrivals import last_rank as last_rank
from .columns import FLAGS as FLAGS
from .columns import STAGE_NAMES as STAGE_NAMES
from .columns import UNKNOWN as UNKNOWN
from .columns import Ints as Ints
from .columns import RankTrack as RankTrack
from .follow import TrackFollower as TrackFollower
from .follow import read_in_turns as read_in_turns
from .merge import RankClock as RankClock
from .merge import Timeline as Timeline
from .merge import load as load
from .merge import timeline_of as timeline_of
from .read_aside import ReadingAside as ReadingAside
from .read_aside import processes_for as processes_for
from .read_columns import read_track as read_track
