"""What the records of all ranks amount to: numbers a model (``build_facts.py``), and findings.

Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing was measured.  Medians of a
bucket or rank are over all ranks and settled steps unless they say otherwise.  ``hooktrace report
--json`` writes these fields as they are.
"""

from __future__ import annotations

import msgspec

from ...records import Unit
from ...records.anomalies import Severity
from ..run.dense import Spread
from ..run.source import ModelSource

HIDDEN = 0.02
"""Exposed share of the step below which communication counts as hidden."""


class BucketError(msgspec.Struct, frozen=True, kw_only=True):
    """Relative L2 errors of ``count`` probes of one bucket; ``worst`` names a parameter.

    ``cosine``: the median of their cosine similarities.
    ``by_design``: the results are not meant to be the average of all ranks.
    """

    p50: float
    most: float
    cosine: float | None
    count: int
    worst: str | None
    has_feedback: bool
    by_design: bool


class WaitsFor(msgspec.Struct, frozen=True):
    """Whom a bucket waited for most often, and in which share of the steps."""

    rank: int
    share: float


class BucketFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket.

    ``ready_ns``: after the first bucket of the step.  ``wait_ns``: of its time on the wire, until
    the last rank is in the collective too, the mean over ranks and steps: whoever is last waits for
    nobody, so a median may be 0 whatever the others wait.  ``transfer_ns``: what is left.
    ``busbw_bytes_per_second``: over transfers; over all time on the wire where these are not known.
    ``waits_for``: ``None`` where it waits for none more often than by chance, or clocks do not tell
    for whom.  ``exposed_share``: the share of the exposed time that went by until this bucket was
    done, after the others before it.  ``largest``: of the parameter with the most elements its name
    and its share of the bucket.  ``unit``: of a sharded model, the collective that takes the
    bucket's place, and ``exposed`` how long training waits for it; ``gradient_bytes`` of a gather
    are parameters.  ``share_of_steps``: in which share of the steps it is; all else is of these.
    """

    bucket: int
    is_last: bool
    parameters: int
    largest: tuple[str, float] | None
    gradient_bytes: int
    wire_bytes: float | None
    ready_ns: float | None
    duration: Spread | None
    stages: dict[str, float]
    transfer_ns: float | None
    wait_ns: float | None
    waits_for: WaitsFor | None
    busbw_bytes_per_second: float | None
    exposed_share: float | None
    error: BucketError | None
    unit: Unit | None = None
    exposed: Spread | None = None
    share_of_steps: float = 1.0

    @property
    def title(self) -> str:
        """What sentences call it."""
        return f"bucket {self.bucket}" if self.unit is None else str(self.unit)


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank; medians of the last bucket: ``arrival_delay_ns`` after the first, ``compress_ns``.

    Of a sharded model ``arrival_delay_ns`` is that of the unit at which it is largest.
    """

    rank: int
    host: str | None
    steps: int
    period_ns: float | None
    exposed_ns: float | None
    overlap: float | None
    arrival_delay_ns: float | None
    compress_ns: float | None


class SlowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that take much longer than the median period, the slowest first.

    ``periods``: all that are known.  ``excess_ns``: what slow steps take beyond the median, a step
    of all steps; ``exposed_share``: of it, what the median rank exposes beyond its median, ``None``
    where no slow step tells.  ``late_rank``: the one that comes after all others in them, by up to
    ``late_ns``, where that is half of the exposed excess or more.
    """

    steps: tuple[int, ...]
    periods: int
    slowest_ns: float
    excess_ns: float
    exposed_share: float | None
    late_rank: int | None = None
    late_ns: float = 0.0


class ModelFacts(ModelSource, frozen=True, kw_only=True):
    """What is measured of the model that ``ModelSource`` tells of.

    Of a step, whose number is the mean of its ranks: ``period``, ``period_noise_ns``, half the
    width of the median period's 95 % interval, ``exposed``, ``overlap``, ``communication_ns``;
    ``exposed_share`` is of two medians; ``net_exposed_ns`` is without what each rank waits for the
    last one at the last bucket, or at all units, and ``last_wait_ns`` that, both of the steps
    whose waits are known.  ``wait_ns`` is what the rank that waits longest
    so does, the median over steps, and ``exposed_wait_ns`` what of this is exposed;
    ``exposed_kinds`` what is exposed in each of ``parts.KINDS``, the mean over ranks and steps.
    ``is_whole``: whether all ranks of the run have a file; ``is_order_known``: whether the clocks
    of all ranks are known at once.  Where no wait is known bus bandwidth is over all time on the
    wire.  ``buckets``: of a sharded model its units' collectives, as they were first met.
    """

    period: Spread | None
    period_noise_ns: float | None
    exposed: Spread | None
    exposed_share: float | None
    net_exposed_ns: float | None
    last_wait_ns: float | None
    overlap: float | None
    communication_ns: float | None
    wait_ns: float | None
    exposed_wait_ns: float | None
    exposed_kinds: dict[str, float]
    busbw_bytes_per_second: float | None
    is_32_bit: bool
    is_whole: bool
    is_order_known: bool
    buckets: tuple[BucketFacts, ...]
    ranks: tuple[RankFacts, ...]
    slow: SlowSteps | None

    @property
    def has_wire(self) -> bool:
        """Whether it is known that transfers are what they take: all ranks tell, and more than one.

        Of a rank without a file nobody knows who waits for it, and a single rank sends nothing.
        """
        return self.is_whole and len(self.ranks) > 1

    @property
    def is_alone(self) -> bool:
        """Whether there is one rank, which waits for nobody and sends nothing."""
        return self.is_whole and len(self.ranks) == 1

    @property
    def is_hidden(self) -> bool:
        """Whether hardly anything is exposed, or that is not known."""
        return (self.exposed_share or 0.0) < HIDDEN

    @property
    def are_alike(self) -> bool:
        """Whether all steps have the same collectives."""
        return all(b.share_of_steps == 1 for b in self.buckets)

    @property
    def last(self) -> BucketFacts | None:
        """The bucket whose gradients come last."""
        return next((b for b in self.buckets if b.is_last), None)

    @property
    def noun(self) -> str:
        """What communicates."""
        return "unit" if self.is_sharded else "bucket"

    @property
    def median_step(self) -> str:
        """What a number of a step is: that of the median step."""
        return "median step" + (", ranks averaged" if len(self.ranks) > 1 else "")

    @property
    def on_ranks(self) -> str:
        """How many ranks the numbers are of, in words."""
        return "1 rank" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, what it rests on, and what to do.

    ``rule``: the name of the rule that found it, or the kind of an anomaly; ``docs``: where the
    docs explain it.  ``bucket``, ``rank``: the one that it is about; ``steps``: those to look at,
    the worst first.  ``gain_ns``: at most so much of each step's time, ``None`` where it cannot be
    computed.  ``lossy_fix``: what to do besides, and loses something of the gradients.
    ``is_small``: the gain is below 3 % of the step, or below what its median may be off by; nothing
    lossy is advised for it.  ``is_wrong``: training itself is not as it should be.  ``is_kept``:
    said however little there is to gain.  ``severity``: of a hang, *fail* where it did not end; of
    an anomaly, as its kind says; ``None`` where nothing is wrong.
    """

    rule: str = ""
    docs: str = ""
    sentence: str
    bucket: int | None = None
    rank: int | None = None
    steps: tuple[int, ...] = ()
    gain_ns: float | None = None
    evidence: tuple[str, ...] = ()
    fix: str = ""
    lossy_fix: str = ""
    is_small: bool = False
    is_wrong: bool = False
    is_kept: bool = False
    severity: Severity | None = None
