"""All ranks in one picture: record files of many ranks as columns, in one clock.

In go the record files of each rank; out comes a Timeline, which report, Perfetto file and tab read.

    rank00000.jsonl --read_columns.py--> RankTrack (columns.py) --+
    rank00001.jsonl --follow.py, as it grows--> RankTrack --------+--merge.py--> Timeline
            ...       clock.py: host times of each rank in rank 0's ----------^     |
                                             arrivals.py: who was ready last <------+

Functions of their input, without torch.  A million buckets are a few arrays, not a million objects.
"""

from __future__ import annotations

from .arrivals import Arrivals, arrivals, bucket_keys, last_rank
from .clock import RankClock
from .columns import (
    FLAGS,
    STAGE_NAMES,
    UNKNOWN,
    BucketColumns,
    Ints,
    RankTrack,
    StageColumns,
    StepColumns,
)
from .follow import TrackFollower
from .merge import (
    Timeline,
    load,
    timeline_of,
)
from .read_columns import read_track

__all__ = [
    "FLAGS",
    "STAGE_NAMES",
    "UNKNOWN",
    "Arrivals",
    "BucketColumns",
    "Ints",
    "RankClock",
    "RankTrack",
    "StageColumns",
    "StepColumns",
    "Timeline",
    "TrackFollower",
    "arrivals",
    "bucket_keys",
    "last_rank",
    "load",
    "read_track",
    "timeline_of",
]
