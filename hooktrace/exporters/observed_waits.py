"""How long a sampled bucket waited on the wire for its last rank, at least.

    SkewRecord --PendingSkews, until its step is there--> bucket --least_wait_ns--> ns

Only a probed bucket's ranks tell each other when they had it ready; of others a rank knows nothing
while it trains (a report knows all of them, from all ranks' files).  The last rank cannot be in the
collective before it has its bucket ready: until then, less what clocks may be off by, this rank's
wire stage was waiting.  What that rank did from ready to its own collective is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..records import BucketRecord, SkewRecord
from ..records.last_used import Bounded

_MOST = 256


class PendingSkews:
    """Skews whose steps have not come; of more, the oldest go."""

    def __init__(self) -> None:
        self._skews: Bounded[tuple[str, int, int], SkewRecord] = Bounded(_MOST)

    def add(self, skews: Iterable[SkewRecord]) -> None:
        """Take skews, which come with their step or before it."""
        for skew in skews:
            self._skews[skew.model, skew.step, skew.bucket] = skew

    def waits_ns(self, buckets: Sequence[BucketRecord]) -> list[int]:
        """Return the least waits of those buckets of a step of which one is known."""
        if not self._skews:
            return []
        pairs = [(b, self._skews.pop((b.model, b.step, b.bucket), None)) for b in buckets]
        found = [least_wait_ns(skew, bucket) for bucket, skew in pairs if skew is not None]
        return [ns for ns in found if ns is not None]


def least_wait_ns(skew: SkewRecord, bucket: BucketRecord) -> int | None:
    """Return how long at least a bucket's collective waited for the last rank; ``None``: not known.

    Known of one round on the host clock, whose result is meant to be the average of all: then all
    ranks are in that collective.
    """
    wires = [stage for stage in bucket.stages if stage.name == "wire"]
    error = bucket.error
    if error is None or error.by_design or error.scope != "global" or bucket.shadow:
        return None
    if skew.uncertainty_ns is None or len(wires) != 1 or bucket.clock != "host":
        return None
    last_ns = bucket.ready_ns + max(skew.arrivals_ns) - skew.lag_ns
    waited_ns = last_ns - skew.uncertainty_ns - wires[0].start_ns
    return min(max(waited_ns, 0), wires[0].duration_ns)
