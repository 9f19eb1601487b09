"""What hooktrace records: frozen values with integer nanoseconds and bytes.

The assembler makes them in the drain thread, exporters read them.  Only the standard library is
imported, so a report can be made where torch is not installed.

Two clocks are never mixed.  Host times are ``time.perf_counter_ns`` of this process (``RunInfo``
turns them into wall-clock time).  Device times are nanoseconds since the first bucket of the same
step was ready on that device, measured with device events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .intervals import overlap_ratio

__all__ = [
    "CLOCK_DRIFT",
    "SCHEMA_VERSION",
    "STAGES",
    "AnomalyRecord",
    "Batch",
    "BucketLayout",
    "BucketRecord",
    "ClockRecord",
    "DeviceSpan",
    "ErrorRecord",
    "LayoutRecord",
    "ParameterError",
    "RunInfo",
    "Scope",
    "SkewRecord",
    "Stage",
    "StepRecord",
    "Transfer",
    "late_rank",
]

SCHEMA_VERSION = 1
"""Version of the record fields; a file that holds records says which one it was written with."""

STAGES = ("compress", "queue", "wire", "decompress", "hook", "pending")
"""Stage names.  A staged hook has compress, queue, wire, decompress; of an opaque hook only the
call itself (hook) and the wait for its future (pending) can be seen."""

Clock = Literal["host", "device"]

CLOCK_DRIFT = 50e-6
"""Parts by which two hosts' clocks may drift apart, which is more than they do under NTP."""

Scope = Literal["global", "local"]
"""What a result is compared with: the average of all ranks' gradients, or, for the local error, the
rank's own, which compress and decompress would give back if they lost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stretch of a bucket's time, ``[start_ns, end_ns]``, in the clock of its owner.

    ``derived`` marks times that come from the queue model and not from a stamp.  ``collective``
    and ``wire_bytes`` are set on wire stages: the operation's kind and the bytes of the payload
    that this rank handed to it.
    """

    name: str
    start_ns: int
    end_ns: int
    derived: bool = False
    collective: str | None = None
    wire_bytes: int | None = None
    dtype: str | None = None

    @property
    def duration_ns(self) -> int:
        """Length in ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What went to collectives of one kind and dtype: the bytes of this rank's payloads."""

    collective: str
    dtype: str
    wire_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpan:
    """A bucket's times on its device, in ns since the first bucket of the step was ready there."""

    ready_ns: int
    done_ns: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterError:
    """The error of one parameter's part of a bucket; numbers as in ``ErrorRecord``."""

    name: str
    relative_l2: float | None
    cosine: float | None
    max_absolute: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecord:
    """How far a hook's result is from the lossless average of the same gradients.

    With x the result and r the average: ``relative_l2`` is |x - r| / |r| (inf where only r is 0),
    ``cosine`` is <x, r> / (|x| |r|), ``max_absolute`` is max |x - r|, ``flipped_share`` the share
    of elements with x r < 0, and ``reference_l2`` is |r|.  ``None``: NaN or inf made it
    meaningless.  ``residual_l2``: the norm of what error feedback keeps of the bucket, where the
    hook's state has an ``error_dict`` as PowerSGD's.  ``worst``: the parameters with the largest
    relative errors, worst first.  ``scope``: ``local`` where r is the rank's own gradients.
    """

    relative_l2: float | None
    cosine: float | None
    max_absolute: float | None
    flipped_share: float | None
    reference_l2: float | None
    residual_l2: float | None = None
    worst: tuple[ParameterError, ...] = ()
    scope: Scope = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRecord:
    """One call of a hook for one bucket.

    ``ready_ns``: the hook was called.  ``launched_ns``: it returned.  ``done_ns``: its result was
    there; for a bucket on a device this is only when the work was enqueued, and the truth is in
    ``device``.  ``wire_bytes`` is ``None`` where it is unknown: of opaque hooks, but for sampled
    steps, whose buckets have ``sent``.  ``bus_bytes`` is payload size times nccl-tests' bus factor.
    ``shadow`` marks a call that DDP made under ``join()`` for a rank that has run out of data.
    ``warmup`` marks steps before DDP settled its buckets: they stay out of statistics.
    ``exception`` is what the hook raised, if it did.  ``error`` is there for probed calls only.
    """

    model: str
    hook: str
    generation: int
    step: int
    bucket: int
    is_last: bool
    dtype: str
    device_type: str
    numel: int
    gradient_bytes: int
    parameter_count: int
    ready_ns: int
    launched_ns: int
    done_ns: int
    stages: tuple[Stage, ...]
    device: DeviceSpan | None = None
    wire_bytes: int | None = None
    bus_bytes: float | None = None
    shadow: bool = False
    warmup: bool = False
    exception: str | None = None
    error: ErrorRecord | None = None
    sent: tuple[Transfer, ...] | None = None

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What is known of what was sent: ``sent``, or what the wire stages say."""
        if self.sent is not None:
            return self.sent
        return tuple(
            Transfer(collective=s.collective or "unknown", dtype=s.dtype, wire_bytes=s.wire_bytes)
            for s in self.timed_stages
            if s.wire_bytes is not None and s.dtype is not None
        )

    @property
    def clock(self) -> Clock:
        """The clock that ``timed_stages`` and ``duration_ns`` are read from."""
        return "device" if self.device_type != "cpu" else "host"

    @property
    def timed_stages(self) -> tuple[Stage, ...]:
        """The stages of the clock that tells the truth for this bucket; empty when unresolved."""
        if self.device is not None:
            return self.device.stages
        return self.stages if self.clock == "host" else ()

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """``(ready, done)`` in the clock of ``clock``; ``None`` for an unresolved device bucket."""
        if self.device is not None:
            return self.device.ready_ns, self.device.done_ns
        return (self.ready_ns, self.done_ns) if self.clock == "host" else None

    @property
    def duration_ns(self) -> int | None:
        """From ready to done in ns; ``None`` when a device bucket's events did not resolve."""
        interval = self.interval_ns
        return None if interval is None else interval[1] - interval[0]

    @property
    def compression_ratio(self) -> float | None:
        """Gradient bytes over wire bytes; ``None`` where wire bytes are unknown or 0."""
        return self.gradient_bytes / self.wire_bytes if self.wire_bytes else None

    def stage_ns(self, name: str) -> int:
        """Return the summed ns of the stages called ``name``; 0 where the hook has none.

        Raises ``ValueError`` for a name that is not in ``STAGES``.
        """
        if name not in STAGES:
            raise ValueError(f"no stage is called {name!r}; the stages are {', '.join(STAGES)}")
        return sum(s.end_ns - s.start_ns for s in self.timed_stages if s.name == name)

    @property
    def busbw_bytes_per_second(self) -> float | None:
        """Bus bandwidth of the wire stages (nccl-tests); ``None`` where unknown."""
        wire_ns = self.stage_ns("wire")
        return self.bus_bytes * 1e9 / wire_ns if self.bus_bytes is not None and wire_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One backward pass that communicated, of one model.

    ``first_ready_ns``, ``last_ready_ns`` and ``done_ns`` are host times.  ``busy_ns``,
    ``exposed_ns`` and ``wire_busy_ns`` (the union of wire stages) are measured by ``clock``;
    they are ``None`` when device events did not resolve.  ``period_ns`` is the time since the
    previous step's first bucket was ready, ``None`` when one of the two steps is not complete.
    ``complete`` is false when a bucket is missing: the backward pass failed, or its record was
    lost.  ``sent``: what an opaque hook sent in a sampled step, also where its callbacks do not let
    one see which bucket sent what.  ``detail_kept`` is false of a step that a file's retention left
    without its buckets.
    """

    model: str
    hook: str
    generation: int
    step: int
    clock: Clock
    first_ready_ns: int
    last_ready_ns: int
    done_ns: int
    busy_ns: int | None
    exposed_ns: int | None
    wire_busy_ns: int | None
    period_ns: int | None
    gradient_bytes: int
    wire_bytes: int | None
    bus_bytes: float | None
    bucket_count: int
    shadow: bool = False
    warmup: bool = False
    complete: bool = True
    sent: tuple[Transfer, ...] | None = None
    detail_kept: bool = True

    @property
    def compression_ratio(self) -> float | None:
        """Gradient bytes over wire bytes; ``None`` where wire bytes are unknown or 0."""
        return self.gradient_bytes / self.wire_bytes if self.wire_bytes else None

    @property
    def counts(self) -> bool:
        """Whether the step's times enter statistics: complete, settled and not a shadow."""
        return self.complete and not self.warmup and not self.shadow

    @property
    def overlap_ratio(self) -> float | None:
        """``1 - exposed / busy``; ``None`` when unresolved."""
        if self.exposed_ns is None or self.busy_ns is None:
            return None
        return overlap_ratio(self.exposed_ns, self.busy_ns)

    @property
    def busbw_bytes_per_second(self) -> float | None:
        """The step's bus bytes over the time with at least one collective on the wire."""
        if self.bus_bytes is None or not self.wire_busy_ns:
            return None
        return self.bus_bytes * 1e9 / self.wire_busy_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLayout:
    """One bucket of a layout.

    ``parameters`` holds (name, shape); without ``instrument()`` the name is ``index.position``.
    """

    bucket: int
    dtype: str
    device_type: str
    numel: int
    gradient_bytes: int
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRecord:
    """The buckets of one generation: DDP rebuilds them after the first backward, in a new order."""

    model: str
    hook: str
    generation: int
    step: int
    time_ns: int
    buckets: tuple[BucketLayout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRecord:
    """Something that went wrong in a hook: ``message`` names it and ends in what to do.

    ``rank``: of the process that saw it.  ``parameter``: the one that it is about, if it is about
    one.  ``bucket`` is -1 where it is about the whole model.
    """

    kind: str
    model: str
    hook: str
    generation: int
    step: int
    bucket: int
    stage: str
    time_ns: int
    message: str
    parameter: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRecord:
    """One measurement of this rank's host clock against rank 0's.

    When this rank's clock showed ``time_ns``, rank 0's showed ``time_ns + offset_ns``, give or take
    ``uncertainty_ns``: half of the shortest of ``pings`` round trips, ``round_trip_ns``.  Away from
    that moment the uncertainty grows by ``CLOCK_DRIFT`` of the distance.
    """

    time_ns: int
    offset_ns: int
    uncertainty_ns: int
    round_trip_ns: int
    pings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewRecord:
    """When each rank had one bucket ready, of a step in which the ranks told each other.

    ``arrivals_ns``: of each of ``ranks``, ns after the first one.  ``uncertainty_ns``: of the
    difference of two of them, ``None`` where the clocks of the ranks are not known to each other.
    ``rank`` is the one that recorded this, ``time_ns`` its host time when it was ready.
    """

    model: str
    hook: str
    generation: int
    step: int
    bucket: int
    time_ns: int
    rank: int
    ranks: tuple[int, ...]
    arrivals_ns: tuple[int, ...]
    uncertainty_ns: int | None

    @property
    def lag_ns(self) -> int:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Who recorded: this process in its job, and its clock's anchor to wall-clock time.

    ``wall_anchor_ns`` (``time.time_ns``) and ``host_anchor_ns`` (``time.perf_counter_ns``) were
    read at the same moment, once per process.
    """

    run_id: str
    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    torch_version: str
    backend: str
    host_anchor_ns: int
    wall_anchor_ns: int

    def wall_ns(self, host_ns: int) -> int:
        """Turn a record's host time into ns since the Unix epoch."""
        return self.wall_anchor_ns + (host_ns - self.host_anchor_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the drain hands to each exporter: whole steps with their buckets, in order.

    ``losses`` are the totals so far of everything that was lost, by reason; ``failures`` the
    exporters that were disabled, by name.
    """

    run: RunInfo
    layouts: tuple[LayoutRecord, ...] = ()
    steps: tuple[tuple[StepRecord, tuple[BucketRecord, ...]], ...] = ()
    anomalies: tuple[AnomalyRecord, ...] = ()
    clocks: tuple[ClockRecord, ...] = ()
    skews: tuple[SkewRecord, ...] = ()
    losses: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
