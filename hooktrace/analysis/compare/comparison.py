"""What a comparison of two runs amounts to; ``hooktrace compare --json`` writes these as they are.

Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing is known.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import Options
from ..run.late import LateRank

Verdict = Literal["differs", "same", "not shown", "unknown"]
Unit = Literal["ns", "bytes", "share", "error", "loss"]


class BucketKey(msgspec.Struct, frozen=True):
    """A bucket: its index, bytes of gradients, and names and shapes of its parameters.

    ``unit``: of a sharded model, which collective of which unit it is, in words.
    """

    bucket: int
    gradient_bytes: int
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    unit: str | None = None


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One model of one run.

    ``name``: as the user called the run.  ``hook_options``, ``bucket_cap_bytes``: as the layout
    says; no options and ``None`` where it does not.  ``steps``: those whose times count, without
    ``probed`` ones.  ``world_size``: 0 where no file tells.  ``least_wire_bytes``,
    ``most_wire_bytes``: of any step.  ``unaligned``: ranks whose clock nobody measured.
    ``waits_unknown``: why wire cannot be told apart into wait and transfer, a clause, or ``None``.
    ``late``: who comes last, the worst first.  ``closed``: whether all files have their end.
    ``is_sharded``: a model under FSDP2, whose ``buckets`` are units' collectives.  ``every``: the
    buckets of steps whose number it divides alone were read.  ``beside``: other models that
    communicate within its steps.
    """

    name: str
    run_id: str
    model: str
    hook: str
    hook_options: Options
    bucket_cap_bytes: int | None
    ranks: tuple[int, ...]
    world_size: int
    hosts: tuple[str, ...]
    torch_version: str
    backend: str
    clock: str
    steps: int
    probed: int
    gradient_bytes: int
    least_wire_bytes: float | None
    most_wire_bytes: float | None
    buckets: tuple[BucketKey, ...]
    unaligned: tuple[int, ...]
    waits_unknown: str | None
    late: tuple[LateRank, ...]
    closed: bool
    is_sharded: bool = False
    every: int = 1
    beside: tuple[str, ...] = ()


class Side(msgspec.Struct, frozen=True):
    """One side: how it is called, and its runs, of one set-up."""

    name: str
    runs: tuple[RunFacts, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What ``a`` and ``b`` are, and ``difference``, b - a, from ``low`` to ``high`` (95 %).

    ``share``: the difference as a share of ``a``, with its own interval.  ``verdict``: *differs*
    where the interval does not hold 0, *same* where both are one constant, *not shown* (to differ)
    else; *unknown* for the reason ``why``.  *Not shown* has a reason only where the interval holds
    no 0, but a run's own halves differ by more.  ``drift_a``, ``drift_b``: the second half of the
    run less its first.  ``runs_needed``: so many a side likely tell a difference like this one
    (``differences.runs_needed``); of one run a side the least that may.
    """

    a: float | None
    b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    verdict: Verdict
    why: str | None = None
    drift_a: float | None = None
    drift_b: float | None = None
    runs_needed: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the two are shown to differ."""
        return self.verdict == "differs"


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """One number a step, the mean of its ranks: medians of both sides over the steps.

    Of ``period_mean`` the means over all steps.  Those of a stage: with at least one bucket in it;
    buckets overlap, so stages do not add up to anything.
    """

    key: str
    title: str
    unit: Unit
    difference: Difference


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage adds to the step time: means over the middle half of the steps.

    Parts add up: those of all stages to the difference of the step time of that half.
    """

    key: str
    title: str
    difference: Difference


class BucketPair(msgspec.Struct, frozen=True, kw_only=True):
    """What a bucket adds to the exposed time, in each side's own numbering.

    ``by``: why the two are taken for one: their *parameters*, or their *size* at the same index.
    ``stage``: the part that differs most, and by how many ns.  ``unit``: of sharded models, what
    both are.
    """

    a: int
    b: int
    by: Literal["parameters", "size"]
    gradient_bytes: int
    largest: str | None
    exposed: Difference
    stage: tuple[str, float] | None
    unit: str | None = None

    @property
    def title(self) -> str:
        """What it is called in tables."""
        if self.unit is not None:
            return self.unit
        return f"{self.a}" if self.a == self.b else f"{self.a} \u2192 {self.b}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides, the second against the first.

    ``sentence``: the whole in one.  ``unlike``: what else differs between the two set-ups.
    ``limits``: how far they are compared.  ``doubts``: what makes it doubtful.  ``by_runs``:
    whether runs are the units of the intervals, and not the steps of two runs.  ``step``: the sum
    of ``parts``.  ``pays_below_bytes_per_second``: the bandwidth above which the second side's hook
    costs more than it saves: bytes that it sends less, over what compress and decompress add to the
    step by ``parts``; ``None`` where it sends no less, or they add nothing.
    """

    a: Side
    b: Side
    sentence: str
    unlike: tuple[str, ...]
    limits: tuple[str, ...]
    doubts: tuple[str, ...]
    by_runs: bool
    quantities: tuple[Quantity, ...]
    step: Difference | None
    parts: tuple[Part, ...]
    buckets: tuple[BucketPair, ...]
    pays_below_bytes_per_second: float | None = None

    @property
    def is_of_units(self) -> bool:
        """Whether both sides are sharded models."""
        return self.a.runs[0].is_sharded and self.b.runs[0].is_sharded

    def quantity(self, key: str) -> Difference | None:
        """Return the difference of one quantity, by its key."""
        return next((one.difference for one in self.quantities if one.key == key), None)
