"""What a comparison of two runs amounts to; ``hooktrace compare --json`` writes these as they are.

Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing is known.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..run.source import ModelSource

Verdict = Literal["differs", "same", "not shown", "unknown"]
Unit = Literal["ns", "bytes", "share", "error"]


class RunFacts(ModelSource, frozen=True, kw_only=True):
    """One model of one run, which the user called ``name``.

    ``world_size``: 0 where no file tells.  ``largest_bytes``: of a bucket.  ``shapes``: of its
    parameters, in order.  ``is_plain``: no stage of the hook is seen, only its call and its
    future.  ``missing``: what the files do not say, in sentences.
    """

    name: str
    run_id: str
    ranks: tuple[int, ...]
    world_size: int
    hosts: tuple[str, ...]
    torch_version: str
    backend: str
    bucket_count: int
    largest_bytes: int
    shapes: tuple[tuple[int, ...], ...]
    is_plain: bool = False
    missing: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What communicates, of which there are several."""
        return "collectives of units" if self.is_sharded else "buckets"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What ``a`` and ``b`` are, and ``difference``, b - a, from ``low`` to ``high`` (95 %).

    ``share``: of ``a``, with its own interval.  ``verdict``: *differs* where the interval does not
    hold 0, *same* where both are one constant, *unknown* for the reason ``why``, else *not shown*
    (to differ): for a reason only where the interval holds no 0, but the halves of a run differ by
    more.
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

    @property
    def differs(self) -> bool:
        """Whether the two are shown to differ."""
        return self.verdict == "differs"

    @property
    def drifts(self) -> bool:
        """Whether they would be, if the halves of a run did not differ by more."""
        return self.verdict == "not shown" and self.why is not None

    @property
    def apart(self) -> float:
        """The difference in ns, 0 where it is not known."""
        return self.difference or 0.0


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """One number a step, the mean of its ranks, over the steps: of both runs.

    Among ``quantities`` the median (of ``period_mean`` the mean); of a stage the time with at least
    one bucket in it.  Among ``parts`` what a stage adds to the step time: means over the middle
    half of the steps, which add up.
    """

    key: str
    title: str
    unit: Unit = "ns"
    difference: Difference


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, the second against the first.

    ``names``: what sentences call them.  ``sentence``: the whole in one.  ``unlike``: what else
    differs between the two set-ups.  ``limits``: how far they are compared.  ``doubts``: what makes
    it doubtful.  ``step``: the sum of ``parts``.  ``pays_below_bytes_per_second``: the bandwidth
    above which the second run's hook costs more than it saves; ``None`` where it sends no less, or
    adds no time.
    """

    a: RunFacts
    b: RunFacts
    names: tuple[str, str]
    sentence: str
    unlike: tuple[str, ...]
    limits: tuple[str, ...]
    doubts: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    step: Difference | None
    parts: tuple[Quantity, ...]
    pays_below_bytes_per_second: float | None = None

    @property
    def noun(self) -> str:
        """What communicates: a bucket, or where both models are sharded, a unit."""
        return "unit" if self.a.is_sharded and self.b.is_sharded else "bucket"

    def quantity(self, key: str) -> Difference | None:
        """Return the difference of one quantity, by its key."""
        return next((one.difference for one in self.quantities if one.key == key), None)

    def part(self, key: str) -> Difference | None:
        """Return what a part adds to the step's difference, by its key."""
        return next((one.difference for one in self.parts if one.key == key), None)
