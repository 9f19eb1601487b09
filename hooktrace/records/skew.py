"""Which rank was ready when, and who is late."""

from __future__ import annotations

from collections.abc import Sequence

from .base import BucketIndex, Count, Ns, Rank, Record, Step


class SkewRecord(Record, frozen=True, kw_only=True, tag="skew"):
    """When each rank had one bucket ready, of a step in which the ranks told each other.

    ``arrivals_ns``: of each of ``ranks``, ns after the first one.  ``uncertainty_ns``: of the
    difference of two of them, ``None`` where the clocks of the ranks are not known to each other.
    ``rank`` is the one that recorded this, ``time_ns`` its host time when it was ready.
    """

    model: str
    hook: str
    rebuild: Count
    step: Step
    bucket: BucketIndex
    time_ns: Ns
    rank: Rank
    ranks: tuple[Rank, ...]
    arrivals_ns: tuple[Ns, ...]
    uncertainty_ns: Ns | None

    def __post_init__(self) -> None:
        if self.rank not in self.ranks or len(self.ranks) != len(self.arrivals_ns):
            raise ValueError("ranks and arrivals_ns do not belong together")

    @property
    def arrival_delay_ns(self) -> int:
        """How long after the first rank this one was ready."""
        return self.arrivals_ns[self.ranks.index(self.rank)]

    @property
    def late_rank(self) -> int | None:
        """The rank that was ready last; ``None`` where the clocks do not tell it from the next."""
        late = late_rank(self.arrivals_ns, self.uncertainty_ns)
        return None if late is None else self.ranks[late]


def late_rank(arrivals_ns: Sequence[int], uncertainty_ns: int | None) -> int | None:
    """Return which of some times is last, by more than their uncertainty; ``None`` if none is."""
    if uncertainty_ns is None or len(arrivals_ns) < 2:
        return None
    order = sorted(range(len(arrivals_ns)), key=arrivals_ns.__getitem__)
    margin_ns = arrivals_ns[order[-1]] - arrivals_ns[order[-2]]
    return order[-1] if margin_ns > uncertainty_ns else None
