"""What is known of buckets: their layout, and each call of a hook for one: stages and bytes.

Two clocks are never mixed.  Host times are ``time.perf_counter_ns`` of this process (``RunInfo``
turns them into wall-clock time).  Device times are nanoseconds since the first bucket of the same
step was ready on that device, measured with device events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from .base import MOST_RANKS, BucketIndex, BusBytes, Count, Ns, Rank, RankCount, Record, Step
from .compression_error import ErrorRecord

StageName = Literal[
    "check", "serialization_wait", "compress", "queue", "wire", "decompress", "hook", "future_wait"
]
STAGES: tuple[str, ...] = get_args(StageName)
"""Stage names, in the order in which they begin.  A staged hook has compress, queue, wire,
decompress; of a plain hook only the call itself (hook) and the wait for its future (future_wait)
can be seen.  A call of several rounds waits for the calls before it (serialization_wait).  What
hooktrace does of its own on a sampled step, before the hook is called and before DDP gets its
result, is check."""


ClockKind = Literal["host", "device"]

ALL_TIMED = 100
"""Steps of a model that are timed one and all, so that a short run is; of later ones some are
``bounded``.  All ranks count the same steps."""

TIMED_ONE_IN = 10
"""Of a model's steps whose buckets are ``bounded``, all whose number it divides are timed, and some
others: these alone say what all are like."""


class StageKind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a stage is, apart from when it was and how much it sent.

    ``derived`` marks times that come from the queue model and not from a stamp.  ``collective``:
    the operation's kind, and ``dtype`` that of its payload, of wire stages.
    """

    name: StageName
    derived: bool = False
    collective: str | None = None
    dtype: str | None = None


class Stage(StageKind, frozen=True, kw_only=True, gc=False):
    """One stretch of a bucket's time, ``[start_ns, end_ns]``, in the clock of its owner.

    ``wire_bytes``: of the payload that this rank handed to the collective, of wire stages.
    """

    start_ns: Ns
    end_ns: Ns
    wire_bytes: Count | None = None

    @property
    def duration_ns(self) -> int:
        """Length in ns."""
        return self.end_ns - self.start_ns


UnitCollective = Literal["all_gather", "reduce_scatter", "all_reduce"]
"""What FSDP does with a unit: it gathers its parameters, reduces its gradients and scatters them,
and, of hybrid sharding, reduces what is left over the replicas."""


Members = tuple[Rank, RankCount, Annotated[int, Meta(ge=1, lt=MOST_RANKS)]]
"""The ranks of a process group, as ``range`` takes them: those of a device mesh always are one."""


UNIT_KINDS = ("all-gather (forward)", "all-gather (backward)", "reduce-scatter", "all-reduce")
"""What ``Unit.kind`` may be, in the order in which a step has them."""


class Unit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which collective of which unit of a sharded model (FSDP2) takes a bucket's place.

    ``name``: of the module whose parameters are communicated together, ``<root>`` for the model
    itself.  ``phase``: whether a backward pass was under way.  ``repeat``: the how-manieth such
    call of a step it is, from 0: under gradient accumulation a unit is gathered several times.
    """

    name: str
    collective: UnitCollective
    phase: Literal["forward", "backward"]
    repeat: Count = 0

    @property
    def kind(self) -> str:
        """What the collective is called: of all-gathers there are two, in forward and backward."""
        name = self.collective.replace("_", "-")
        return f"{name} ({self.phase})" if self.collective == "all_gather" else name

    def __str__(self) -> str:
        again = f" #{self.repeat + 1}" if self.repeat else ""
        return f"{self.name} {self.collective.replace('_', '-')} ({self.phase}){again}"


class Transfer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What went to collectives of one kind and dtype: the bytes of this rank's payloads."""

    collective: str
    dtype: str
    wire_bytes: Count


class DeviceSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A bucket's times on its device, in ns since the first bucket of the step was ready there."""

    ready_ns: Ns
    done_ns: Ns
    stages: tuple[Stage, ...]


class BucketFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is the same in all calls for a bucket; files say it once (``lines.py``).

    ``is_last``: the bucket whose gradients come last.  ``numel``: elements; ``parameter_count``:
    parameters that share the bucket.  ``unit``: there, of a sharded model; then ``numel`` and
    ``gradient_bytes`` are of the payload that FSDP gives the collective, which for an all-gather
    are this rank's parameters.  ``members``: the ranks of the job that are in its collectives, this
    one among them; ``None``: all of them are, or of a unit that is not known.
    """

    hook: str
    is_last: bool
    dtype: str
    device_type: str
    numel: Count
    gradient_bytes: Count
    parameter_count: Count
    unit: Unit | None = None
    members: Members | None = None


class BucketRecord(BucketFacts, frozen=True, kw_only=True, tag_field="kind", tag="bucket"):
    """One call of a hook for one bucket.

    ``ready_ns``: the hook was called.  ``launched_ns``: it returned.  ``done_ns``: its result was
    there for DDP, and the hook had returned; of a bucket on a device this is only when the work was
    enqueued, and the truth is in ``device``.  ``wire_bytes`` is ``None`` where it is unknown, as
    of plain hooks before torch 2.14; ``sent``: what is known of a plain hook.  ``bus_bytes``
    is payload size times nccl-tests' bus factor.
    ``join_dummy`` marks a call that DDP made under ``join()`` for a rank that has run out of data.
    ``warmup`` marks steps before DDP settled its buckets: they stay out of statistics.
    ``bounded`` marks a call that was not timed, as on CPUs in most steps of a plain hook, and of a
    model without one (torch 2.14): it was done by ``done_ns``, and has no stages.
    ``checked`` marks a call in which hooktrace did work of its own that takes time (stage check).
    ``exception`` is what the hook raised, if it did.  ``error`` is there for checked calls only.
    ``exposed_ns``: of a sharded model's unit, how long training waited for it, on a device its
    computing stream; ``None`` where that is not known, and for buckets, which do not wait one by
    one.
    """

    model: str
    rebuild: Count
    step: Step
    bucket: BucketIndex
    ready_ns: Ns
    launched_ns: Ns
    done_ns: Ns
    stages: tuple[Stage, ...]
    device: DeviceSpan | None = None
    wire_bytes: Count | None = None
    bus_bytes: BusBytes | None = None
    join_dummy: bool = False
    warmup: bool = False
    checked: bool = False
    bounded: bool = False
    exception: str | None = None
    error: ErrorRecord | None = None
    sent: tuple[Transfer, ...] | None = None
    exposed_ns: Ns | None = None

    @property
    def clock(self) -> ClockKind:
        """The clock that ``timed_stages`` and ``duration_ns`` are read from."""
        return "device" if self.device_type != "cpu" else "host"

    @property
    def timed_stages(self) -> tuple[Stage, ...]:
        """The stages of the clock that tells the truth for this bucket; empty when not timed."""
        if self.device is not None:
            return self.device.stages
        return self.stages if self.device_type == "cpu" else ()

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """``(ready, done)`` in the clock of ``clock``; ``None`` for a bucket that was not timed."""
        if self.device is not None:
            return self.device.ready_ns, self.device.done_ns
        return None if self.bounded or self.device_type != "cpu" else (self.ready_ns, self.done_ns)

    @property
    def duration_ns(self) -> int | None:
        """From ready to done in ns; ``None`` of a bucket that was not timed."""
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

    def stage_totals_ns(self) -> dict[str, int]:
        """Return the summed ns of each stage that occurred in ``timed_stages``, by name."""
        stages = self.timed_stages
        totals: dict[str, int] = {stage.name: stage.end_ns - stage.start_ns for stage in stages}
        if len(totals) < len(stages):  # of several rounds
            totals = {name: self.stage_ns(name) for name in totals}
        return totals

    @property
    def busbw_bytes_per_second(self) -> float | None:
        """Bus bandwidth of the wire stages (nccl-tests); ``None`` where unknown.

        And where nothing crosses a bus, as in a group of one rank.  They hold waiting for late
        ranks, which one rank does not know.
        """
        wire_ns = self.stage_ns("wire")
        return self.bus_bytes * 1e9 / wire_ns if self.bus_bytes and wire_ns else None


def stage_lengths_ns(calls: Iterable[BucketRecord]) -> dict[str, list[int]]:
    """Return the ``stage_totals_ns`` of calls that did not fail: by name, one of each call."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for call in calls:
        if call.exception is None:
            stages = call.timed_stages
            if len({stage.name for stage in stages}) == len(stages):
                for stage in stages:
                    found[stage.name].append(stage.end_ns - stage.start_ns)
            else:  # of several rounds
                for name, ns in call.stage_totals_ns().items():
                    found[name].append(ns)
    return found


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """A parameter in a bucket; without ``instrument()`` its name is ``index.position``."""

    name: str
    shape: tuple[Count, ...]


class BucketLayout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One bucket of a layout: which parameters share it."""

    bucket: BucketIndex
    dtype: str
    device_type: str
    numel: Count
    gradient_bytes: Count
    parameters: tuple[Parameter, ...]
    unit: Unit | None = None
    members: Members | None = None


Options = tuple[tuple[str, bool | int | float | str], ...]
"""Names and values."""


class AssignmentRecord(Record, frozen=True, kw_only=True, tag="assignment"):
    """The buckets of one rebuild: DDP rebuilds them after the first backward, in a new order.

    ``hook_options``: what the hook's state was made with, as far as numbers and words say it;
    ``bucket_cap_bytes``: DDP's, ``None`` where only the hook is known (``trace`` without
    ``instrument``).
    """

    model: str
    hook: str
    rebuild: Count
    step: Step
    time_ns: Ns
    buckets: tuple[BucketLayout, ...]
    hook_options: Options = ()
    bucket_cap_bytes: Count | None = None
