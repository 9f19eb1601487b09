"""The numbers of one model that rules and views read; ``hooktrace report --json`` writes them.

    Run, StepArrays --model_facts--> ModelFacts: of the model, its buckets, its ranks, slow steps

Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing was measured.  Medians of a
bucket or rank are over all ranks and settled steps unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import msgspec
import numpy as np
from msgspec.structs import asdict

from ...records import ErrorRecord, Unit
from ...records.anomalies import Severity
from ...records.units import counted
from ..run import Run
from ..run.bootstrap import LEVEL, MEDIAN, Series, draws_for
from ..run.columns import Floats
from ..run.dense import Spread, StepArrays, known, known_middle, middle, spread, sums
from ..run.order import is_order_known, late_in
from ..run.parts import KINDS, step_parts
from ..run.source import ModelSource, model_source, of_step
from ..run.tables import SHOWN

HIDDEN = 0.02
"""Exposed share of the step below which communication counts as hidden."""

SLOW = 1.5
"""A step is slow from so many median periods on."""

_FEWEST_PERIODS = 8
"""Of which it is told what is slow."""


class ModelFacts(ModelSource, frozen=True, kw_only=True):
    """What is measured of the model that ``ModelSource`` tells of.

    Of a step, whose number is the mean of its ranks: ``period``, ``period_noise_ns``, half the
    width of the median period's 95 % interval, ``exposed``, ``overlap``, ``communication_ns``;
    ``exposed_share`` is of two medians.  ``last_wait_ns``: what of the exposed time a rank waits
    for the last one at the last bucket, or at all units, and ``net_exposed_ns`` the rest, both of
    the steps whose waits are known; ``None`` (in JSON ``null``) without any, as of a plain hook.
    ``wait_ns`` is what the rank that waits longest so does, the median over steps, and
    ``exposed_wait_ns`` what of this is exposed; ``exposed_kinds`` what is exposed in each of
    ``parts.KINDS``, the mean over ranks and steps.
    ``is_whole``: whether all ranks of the run have a file; ``is_order_known``: whether the clocks
    of all ranks are known at once.  ``busbw_bytes_per_second``: over transfers.
    ``buckets``: of a sharded model its units' collectives, as they were first met.
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
        return counted(len(self.ranks), "rank")


class BucketFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket.

    ``ready_ns``: after the first bucket of the step.  ``wait_ns``: of its time on the wire, until
    the last rank is in the collective too, the mean over ranks and steps: whoever is last waits for
    nobody, so a median may be 0 whatever the others wait.  ``transfer_ns``: what is left.
    ``exposed_share``: the share of the exposed time that went by until this bucket was done, after
    the others before it.  ``largest``: of the parameter with the most elements its name and its
    share of the bucket.  ``unit``: of a sharded model, the collective that takes the bucket's
    place, and ``exposed`` how long training waits for it; ``gradient_bytes`` of a gather are
    parameters.  ``share_of_steps``: in which share of the steps it is; all else is of these.
    """

    bucket: int
    is_last: bool
    largest: tuple[str, float] | None
    gradient_bytes: int
    wire_bytes: float | None
    ready_ns: float | None
    duration: Spread | None
    stages: dict[str, float]
    transfer_ns: float | None
    wait_ns: float | None
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


class RankFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank.

    ``arrival_delay_ns``: by how much it has the last bucket ready after the first rank, or of a
    sharded model the unit at which that is most.
    """

    rank: int
    host: str | None
    steps: int
    period_ns: float | None
    exposed_ns: float | None
    overlap: float | None
    arrival_delay_ns: float | None


class SlowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that take much longer than the median period, the slowest first.

    ``periods``: all that are known.  ``excess_ns``: what slow steps take beyond the median, a step
    of all steps; ``exposed_share``: of it, what the median rank exposes beyond its median, ``None``
    where no slow step tells.  ``late_rank``: the one that comes after all others in them, where
    that is half of the exposed excess or more.
    """

    steps: tuple[int, ...]
    periods: int
    slowest_ns: float
    excess_ns: float
    exposed_share: float | None
    late_rank: int | None = None


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


def model_facts(run: Run, arrays: StepArrays) -> ModelFacts:
    """Return the facts of a model."""
    source = model_source(run, arrays)
    sample, per_step = arrays.sample, of_step(arrays.period)
    period, exposed = spread(per_step), spread(of_step(arrays.exposed))
    waited = sample.waited
    waits = sums(waited if arrays.is_sharded else waited[..., sample.buckets == sample.last])
    exposed_waits = np.minimum(waits, sample.exposed)
    parts = step_parts(sample, busy_of=("transfer",))
    transfer = parts.busy_in[KINDS.index("transfer")]
    transfer[np.isnan(waited).all(axis=(0, 2))] = np.nan
    layouts = (one for track in run.tracks for one in track.records.assignments)
    entries = (b for one in layouts if one.model == arrays.model for b in one.buckets)
    widths = {b.gradient_bytes / b.numel for b in entries if b.numel}
    return ModelFacts(
        **asdict(source),
        period=period,
        period_noise_ns=noise_ns(per_step),
        exposed=exposed,
        exposed_share=exposed.p50 / period.p50 if exposed and period and period.p50 else None,
        net_exposed_ns=known_middle(of_step(sample.exposed - exposed_waits)),
        last_wait_ns=known_middle(of_step(exposed_waits)),
        overlap=known_middle(1 - of_step(arrays.exposed) / of_step(arrays.communication)),
        communication_ns=known_middle(of_step(arrays.communication)),
        wait_ns=known_middle(np.fmax.reduce(waits, axis=0)),
        exposed_wait_ns=known_middle(np.fmax.reduce(exposed_waits, axis=0)),
        exposed_kinds=parts.exposed_kinds,
        busbw_bytes_per_second=_rate(of_step(sample.by_step("bus_bytes")), transfer),
        is_32_bit=widths == {4.0},
        is_whole=run.is_whole,
        is_order_known=is_order_known(arrays),
        buckets=tuple(_buckets(sample, parts.shares)),
        ranks=tuple(_ranks(run, arrays)),
        slow=_slow_steps(arrays),
    )


def _buckets(arrays: StepArrays, shares: Floats) -> Iterator[BucketFacts]:
    summed = {
        how.fact: list(
            map(how.summed, arrays.of_each_bucket(column, with_checked=how.with_checked))
        )
        for column, how in SHOWN
        if how.summed is not None
    }
    on_bus, transfer = arrays.column("bus_bytes"), arrays.stages.get("wire", 0.0) - arrays.waited
    errors: dict[int, list[ErrorRecord]] = {}
    for _, bucket, error in arrays.probes():
        errors.setdefault(bucket, []).append(error)
    there = ~np.isnan(arrays.called)
    times, steps = there.any(axis=0).sum(axis=0), max(1, int(there.any(axis=(0, 2)).sum()))
    for b, index in enumerate(arrays.buckets.tolist()):
        entry = arrays.entries.get(index)
        unit = entry.unit if entry else None
        if arrays.is_sharded and unit is None:
            continue  # the line that says which unit it is could not be read
        sizes = [(prod(one.shape), one.name) for one in (entry.parameters if entry else ())]
        size, name = max(sizes, default=(0, ""))
        middles = {name: known_middle(ns[..., b]) for name, ns in arrays.stages.items()}
        yield BucketFacts(
            **{fact: values[b] for fact, values in summed.items()},
            bucket=index,
            is_last=index == arrays.last,
            largest=(name, size / max(1, sum(one for one, _ in sizes))) if sizes else None,
            ready_ns=known_middle(arrays.ready[..., b] - arrays.first_ready),
            stages={name: ns for name, ns in middles.items() if ns is not None},
            busbw_bytes_per_second=_rate(on_bus[..., b], transfer[..., b]),
            exposed_share=known(float(shares[b])),
            error=_error(errors.get(index, [])),
            unit=unit,
            share_of_steps=float(times[b] / steps) if arrays.is_sharded else 1.0,
        )


def _error(errors: list[ErrorRecord]) -> BucketError | None:
    """Return what the probes of one bucket found; ``None`` where none has a number."""
    found = [(e.relative_l2, e) for e in errors if e.relative_l2 is not None]
    if not found:
        return None
    most, record = max(found, key=lambda pair: pair[0])
    cosines = [e.cosine for e in errors if e.cosine is not None]
    return BucketError(
        cosine=float(np.median(cosines)) if cosines else None,
        p50=float(np.median([value for value, _ in found])),
        most=most,
        count=len(found),
        worst=record.worst[0].name if record.worst else None,
        has_feedback=any(e.residual_l2 is not None for e in errors),
        by_design=record.by_design,
    )


def _rate(count: Floats, ns: Floats) -> float | None:
    """Return the median bandwidth of transfers, bytes a second.

    ``None`` where no time went by, or no bytes, as in a group of one rank.
    """
    return known_middle(count * 1e9 / np.where(ns > 0, ns, np.nan)) or None


def _ranks(run: Run, arrays: StepArrays) -> Iterator[RankFacts]:
    """Yield the facts of each rank; one rank alone does not know its delay."""
    of, steps = arrays.sample, np.count_nonzero(~np.isnan(arrays.by_step("step")), axis=1)
    delays = of.delays((of.buckets == of.last) | of.is_sharded)
    delays = np.fmax.reduce(delays, axis=1, initial=np.nan)
    overlap = 1 - arrays.exposed / arrays.communication
    for i, track in enumerate(run.tracks):
        yield RankFacts(
            rank=track.rank,
            host=track.host,
            steps=int(steps[i]),
            period_ns=known_middle(arrays.period[i]),
            exposed_ns=known_middle(arrays.exposed[i]),
            overlap=known_middle(overlap[i]),
            arrival_delay_ns=known(float(delays[i])),
        )


def _slow_steps(arrays: StepArrays) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or too few periods are known."""
    period = arrays.job_period
    count, usual = int(np.count_nonzero(~np.isnan(period))), middle(period)
    slow = np.flatnonzero(period >= SLOW * usual)
    if count < _FEWEST_PERIODS or usual <= 0 or not len(slow):
        return None
    beyond = period[slow] - usual
    # The median over ranks, of an even number the upper middle: of two the one that waits.
    exposed = np.sort(arrays.exposed, axis=0)  # NaN comes last
    upper = np.count_nonzero(~np.isnan(exposed), axis=0)[None] // 2
    exposed = np.take_along_axis(exposed, upper.clip(max=len(exposed) - 1), axis=0)[0]
    more = np.clip(exposed[slow] - middle(exposed), 0.0, beyond)
    told = ~np.isnan(more)  # all others are taken to have the same share of it
    share = float(more[told].sum() / beyond[told].sum()) if told.any() else None
    late_rank = None
    if share is not None and share >= 1 / 4:  # else hardly anybody waits
        of, numbers = arrays.detailed, arrays.steps[slow]
        least = float(np.nansum(more[np.isin(numbers, of.steps)])) / 2
        late_rank = late_in(of, np.isin(of.steps, numbers), least)
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(arrays.steps[worst].tolist()),
        periods=count,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / count,
        exposed_share=share,
        late_rank=late_rank,
    )


_LEAST, _MOST = 16, 20_000
"""Steps of which a median's interval is told, and that are looked at, in the middle of a run."""


def noise_ns(period: Floats) -> float | None:
    """Return half the width of the median period's 95 % interval, ns; ``None`` below 16 steps."""
    steps = period[~np.isnan(period)]
    first = max(0, len(steps) // 2 - _MOST // 2)
    steps = steps[first : first + _MOST]
    if len(steps) < _LEAST:
        return None
    found = Series(steps, steps, MEDIAN).resampled(0, draws=draws_for(len(steps)))
    low, high = np.quantile(found.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(high - low) / 2
