"""What else communicates while models train: collectives of no traced model.

A model's are its buckets, and what DDP issues besides: buffers, ``join()``.  All others are seen in
sampled steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from ...records.intervals import union_ns
from ...records.other import OtherCollective, OtherCollectives
from .columns import UNKNOWN, RankTrack
from .run import Run, once


class OtherTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Means over ``steps`` sampled steps, each until the next one's first bucket, on all ranks.

    ``count``, ``wire_bytes``, ``in_flight_ns``: collectives of no traced model, their payload,
    and how long at least one is in flight; ``ddp_bytes``: that of traced models.  ``None``: not
    known of all.  ``longest``: kind and line of those that are in flight longest, "" where there is
    none.  ``unseen_groups``: the most process groups that were not seen.
    """

    steps: int
    count: float
    wire_bytes: float | None
    ddp_bytes: float | None
    in_flight_ns: float | None
    longest: str
    unseen_groups: int

    @property
    def share(self) -> float | None:
        """Share of the payload that is of no traced model."""
        if self.wire_bytes is None or self.ddp_bytes is None:
            return None
        return self.wire_bytes / max(self.wire_bytes + self.ddp_bytes, 1)


@once
def other_traffic(run: Run) -> OtherTraffic | None:
    """Return it; ``None`` where no file has such a step."""
    found = [(track, one) for track in run.tracks for one in track.records.others]
    if not found:
        return None
    records, took = [one for _, one in found], Counter[str]()
    for other in (other for one in records for other in theirs(one)):
        # Of one whose end is not known 0.
        ns = max(0, (other.done_ns or 0) - other.issued_ns)
        took[f"{other.name} at {other.where or 'an unknown line'}"] += ns
    return OtherTraffic(
        steps=len({(one.model, one.step) for one in records}),
        count=sum(one.count for one in records) / len(found),
        wire_bytes=_mean([one.wire_bytes for one in records]),
        ddp_bytes=_mean([_of_ddp(*one) for one in found]),
        in_flight_ns=_mean([_in_flight(one) for one in records]),
        longest=max(took, key=took.__getitem__, default=""),
        unseen_groups=max(one.unseen_groups for one in records),
    )


def theirs(record: OtherCollectives) -> Iterator[OtherCollective]:
    """Yield those that are listed and none of DDP's."""
    return (one for one in record.collectives if not one.of_ddp)


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if len(known) == len(values) else None


def _in_flight(record: OtherCollectives) -> int | None:
    spans = [(one.issued_ns, one.done_ns) for one in theirs(record)]
    known = [(start, end) for start, end in spans if end is not None]
    return union_ns(known) if len(known) == len(spans) and not record.more else None


def _of_ddp(track: RankTrack, record: OtherCollectives) -> int | None:
    steps = track.steps
    rows = (steps.first_ready >= record.time_ns) & (steps.first_ready < record.until_ns)
    sent = steps.wire_bytes[rows]
    if not len(sent) or (sent == UNKNOWN).any():
        return None
    return int(sent.astype(np.int64).sum()) + record.ddp_bytes
