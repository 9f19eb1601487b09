"""What is known of one backward pass that communicated, and what the drain hands to exporters."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from .base import BusBytes, Count, Ns, Record, Step
from .bucket import BucketRecord, ClockKind, Transfer
from .intervals import overlap_ratio
from .run import RunInfo

R = TypeVar("R")

KeptFor = Literal["window", "first", "asked", "checked", "wrong", "slow"]
"""Why a file has the buckets of a step: it is one of so many in a row, or of the first, by its
number; somebody asked for it; it was checked, went wrong, or was slow."""


class StepRecord(Record, frozen=True, kw_only=True, tag="step"):
    """One backward pass that communicated, of one model.

    ``first_ready_ns``, ``last_ready_ns`` and ``done_ns`` are host times. ``communication_ns``,
    ``exposed_ns`` and ``wire_in_flight_ns`` (the union of wire stages) are measured by ``clock``;
    they are ``None`` when device events did not resolve, ``exposed_ns`` where the backward pass did
    not come to its end, the others where the step was not timed (``bounded``). A step's
    period, from its own first ready bucket to the next step's, is known when that comes:
    ``previous_period_ns`` is the period of the step before, ``None`` where that one does not count,
    or this one is not complete.
    ``complete`` is false when a bucket is missing or failed: the backward pass failed, or a record
    was lost.  ``checked`` is true when hooktrace itself looked at a bucket of the step, or began
    with the model: its times hold that.  ``sent``: what a plain
    hook sent, where not each call's stages say it;
    ``sent_unknown``: why that is not known.  ``sharded``: of a model under FSDP2, whose step is all
    that was communicated up to the end of a backward pass that reduced gradients; ``exposed_ns`` is
    then how long training waited for its units, one by one, ``None`` where that is not known of
    one of them.  ``detail_kept`` is false of a step that a file's retention left without its
    buckets, and ``kept_for`` why it has them otherwise: only steps that are kept by their number
    say what steps are like.  ``None``: nobody chose, or it is the one before a slow step.
    """

    model: str
    hook: str
    rebuild: Count
    step: Step
    clock: ClockKind
    first_ready_ns: Ns
    last_ready_ns: Ns
    done_ns: Ns
    communication_ns: Ns | None
    exposed_ns: Ns | None
    wire_in_flight_ns: Ns | None
    previous_period_ns: Ns | None
    gradient_bytes: Count
    wire_bytes: Count | None
    bus_bytes: BusBytes | None
    bucket_count: Count
    join_dummy: bool = False
    warmup: bool = False
    complete: bool = True
    checked: bool = False
    sent: tuple[Transfer, ...] | None = None
    sent_unknown: str | None = None
    sharded: bool = False
    detail_kept: bool = True
    kept_for: KeptFor | None = None

    @property
    def compression_ratio(self) -> float | None:
        """Gradient bytes over wire bytes; ``None`` where wire bytes are unknown or 0."""
        return self.gradient_bytes / self.wire_bytes if self.wire_bytes else None

    @property
    def settled(self) -> bool:
        """Whether the step's bytes and errors enter statistics: complete, no warm-up, no dummy."""
        return self.complete and not self.warmup and not self.join_dummy

    @property
    def counts(self) -> bool:
        """Whether the step's times enter statistics: settled, and not checked."""
        return self.settled and not self.checked

    @property
    def overlap_ratio(self) -> float | None:
        """``1 - exposed / communication time``; ``None`` when unresolved."""
        if self.exposed_ns is None or self.communication_ns is None:
            return None
        return overlap_ratio(self.exposed_ns, self.communication_ns)

    @property
    def busbw_bytes_per_second(self) -> float | None:
        """The step's bus bytes over the time with at least one collective on the wire.

        That holds waiting for late ranks, which one rank does not know.  ``None`` where unknown,
        and where nothing crosses a bus, as in a group of one rank.
        """
        if not self.bus_bytes or not self.wire_in_flight_ns:
            return None
        return self.bus_bytes * 1e9 / self.wire_in_flight_ns


CompletedStep = tuple[StepRecord, tuple[BucketRecord, ...]]
"""A step and its buckets, in order."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the drain hands to each exporter: whole steps with their buckets, in order.

    ``records`` are all that are no step or bucket, of whatever kind, in order; an anomaly comes in
    the batch of its step.  ``losses`` are the totals so far of everything that was lost, by reason;
    ``failures`` how many exporters were disabled, by name, 0 of those that work.
    """

    run: RunInfo
    steps: tuple[CompletedStep, ...] = ()
    records: tuple[object, ...] = ()
    losses: dict[str, int] = {}
    failures: dict[str, int] = {}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Return the records of one kind: ``batch.of(AnomalyRecord)``."""
        return tuple(record for record in self.records if isinstance(record, kind))
