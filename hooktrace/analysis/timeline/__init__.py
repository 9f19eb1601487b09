"""All ranks in one picture: record files of many ranks as columns, in one clock.

In go the record files of each rank; out comes a Timeline, which report, Perfetto file and tab read.

    rank00000.jsonl --read_columns.py--> RankTrack (columns.py) --+
    rank00001.jsonl --follow.py, as it grows--> RankTrack --------+--merge.py--> Timeline
                      also in processes of its own                |
            ...                              arrivals.py: who was ready last <------+
                                             hangs.py: who waited for whom <--------+
                             counts.py: which steps count, and why not the others
                            waits.py: of a collective what was waiting for whom <--+
                            whole.py: of a sharded model, which ranks are in each
              critical_path.py: what a step could not have ended without <--+

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
from .columns import Bools as Bools
from .columns import Ints as Ints
from .columns import RankTrack as RankTrack
from .counts import COUNTS as COUNTS
from .counts import HANG as HANG
from .counts import PROBED as PROBED
from .counts import REASONS as REASONS
from .counts import reasons as reasons
from .critical_path import CriticalPath as CriticalPath
from .critical_path import CriticalPaths as CriticalPaths
from .follow import ReadingAside as ReadingAside
from .follow import TrackFollower as TrackFollower
from .follow import processes_for as processes_for
from .follow import read_in_turns as read_in_turns
from .hangs import Hang as Hang
from .hangs import hangs as hangs
from .merge import RankClock as RankClock
from .merge import Timeline as Timeline
from .merge import Unread as Unread
from .merge import load as load
from .merge import newest_run as newest_run
from .merge import timeline_of as timeline_of
from .path_sums import PathSums as PathSums
from .path_sums import critical_path_sums as critical_path_sums
from .path_sums import models_beside as models_beside
from .read_columns import read_track as read_track
from .waits import Waits as Waits
from .waits import WireWaits as WireWaits
from .waits import waits as waits
from .waits import wire_waits as wire_waits
from .whole import groups_of as groups_of
from .whole import ranks_within as ranks_within
from .whole import units_by_number as units_by_number
from .whole import unlike_numbers as unlike_numbers
