"""One step over all ranks of a job: what each of them measured, put together on the way to rank 0.

    StepSpread of a rank --merged--> of a host --merged--> of the job --> JobStepRecord

Putting together is associative and commutative: in whatever order and groups the ranks come, the
result is the same.
"""

from __future__ import annotations

import msgspec

from .base import Count, Ns, Rank, RankCount, Record, Step


class Range(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Least and most of one quantity over ``count`` ranks, each with its rank; ns.

    Of equal ones the lower rank stands.
    """

    count: Count
    least_ns: Ns
    least_rank: Rank
    most_ns: Ns
    most_rank: Rank


def range_of(ns: int | None, rank: int) -> Range | None:
    """Return the range of one rank's value; ``None`` where it is not known."""
    return None if ns is None else Range(1, ns, rank, ns, rank)


class StepSpread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step of one model over ``ranks`` ranks.

    ``period``: from the first ready bucket of the step before to the first of this one.
    ``exposed``: communication that backward did not hide.  ``arrival``: when a rank had its last
    bucket ready, in rank 0's clock, of the ranks whose clock is known, each to within
    ``uncertainty_ns``.  A range is ``None`` where no rank knows: of a step that hooktrace checked,
    for example.  ``period_total_ns``, ``exposed_total_ns``: sums over the ranks of the range.
    ``incomplete``: ranks that miss a bucket of the step.
    """

    step: Step
    ranks: Count = 1
    incomplete: Count = 0
    period: Range | None = None
    period_total_ns: Ns = 0
    exposed: Range | None = None
    exposed_total_ns: Ns = 0
    arrival: Range | None = None
    uncertainty_ns: Ns = 0

    @property
    def period_mean_ns(self) -> float | None:
        """Return the mean over the ranks that know theirs."""
        return None if self.period is None else self.period_total_ns / self.period.count

    @property
    def exposed_mean_ns(self) -> float | None:
        """Return the mean over the ranks that know theirs."""
        return None if self.exposed is None else self.exposed_total_ns / self.exposed.count

    @property
    def arrival_delay_ns(self) -> int | None:
        """Return how long the last rank came after the first; ``None`` without two of them."""
        if self.arrival is None or self.arrival.count < 2:
            return None
        return self.arrival.most_ns - self.arrival.least_ns

    @property
    def last_rank(self) -> int | None:
        """Return who came last; ``None`` where the clocks may be off by as much as the delay."""
        delay = self.arrival_delay_ns
        if self.arrival is None or delay is None or delay <= 2 * self.uncertainty_ns:
            return None
        return self.arrival.most_rank


def merged(one: StepSpread, other: StepSpread) -> StepSpread:
    """Return the same step over the ranks of both, which share no rank."""
    return StepSpread(
        one.step,
        one.ranks + other.ranks,
        one.incomplete + other.incomplete,
        _wider(one.period, other.period),
        one.period_total_ns + other.period_total_ns,
        _wider(one.exposed, other.exposed),
        one.exposed_total_ns + other.exposed_total_ns,
        _wider(one.arrival, other.arrival),
        max(one.uncertainty_ns, other.uncertainty_ns),
    )


def _wider(one: Range | None, other: Range | None) -> Range | None:
    if one is None or other is None:
        return other if one is None else one
    # A hub does this some thousand times a second: no tuples are made to compare.
    least = most = one
    if other.least_ns < one.least_ns or (
        other.least_ns == one.least_ns and other.least_rank < one.least_rank
    ):
        least = other
    if other.most_ns > one.most_ns or (
        other.most_ns == one.most_ns and other.most_rank < one.most_rank
    ):
        most = other
    return Range(
        one.count + other.count, least.least_ns, least.least_rank, most.most_ns, most.most_rank
    )


class JobStepRecord(Record, frozen=True, kw_only=True, tag="job_step"):
    """A step of a model over the job, as its hub knows it; made for exporters of the hub's rank.

    ``world_size``: of the job; a model may be on fewer ranks.
    """

    model: str
    hook: str
    world_size: RankCount
    spread: StepSpread
