"""Steps that are no usual ones: those that are slow, and those that stalled; and for whom.

StepArrays --> SlowSteps, Stall of each
"""

from __future__ import annotations

import numpy as np

from ...records.stall import ENOUGH_STEPS, is_stall
from ..run import UNKNOWN
from ..run.dense import Floats, StepArrays, medians, middle
from ..run.late import late_in
from .facts import SlowSteps, Stall

SLOW = 1.5
"""A step is slow from so many median periods on."""


def slow_steps(arrays: StepArrays) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or fewer than 8 periods are known."""
    period = arrays.job_period
    known = int(np.count_nonzero(~np.isnan(period)))
    usual = middle(period)
    slow = np.flatnonzero(period >= SLOW * usual)
    if known < 8 or usual <= 0 or not len(slow):
        return None
    beyond = period[slow] - usual
    total = float(beyond.sum()) / known
    # The median over ranks, of an even number the upper middle: of two the one that waits.
    exposed = np.sort(arrays.exposed, axis=0)  # NaN comes last
    upper = np.count_nonzero(~np.isnan(exposed), axis=0)[None] // 2
    exposed = np.take_along_axis(exposed, upper.clip(max=len(exposed) - 1), axis=0)[0]
    more = exposed[slow] - middle(exposed)
    exposed_ns = _part_of(total, beyond, more)
    late_rank, late_ns = None, 0.0
    if exposed_ns is not None and exposed_ns >= total / 4:  # else hardly anybody waits
        places = [arrays.detailed.place_of(step) for step in arrays.steps[slow].tolist()]
        told = np.array(places) != UNKNOWN
        least = float(np.nansum(np.clip(more, 0.0, beyond)[told])) / 2
        late_rank, late_ns = late_in(arrays.detailed, np.array(places)[told], least)
    in_backward: float | None = 0.0
    if not arrays.is_sharded:
        backward = medians(arrays.backward, axis=0)
        in_backward = _part_of(total, beyond, backward[slow] - middle(backward))
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(arrays.steps[worst].tolist()),
        periods=known,
        slowest_ns=float(period[worst[0]]),
        excess_ns=total,
        exposed_excess_ns=exposed_ns,
        backward_excess_ns=in_backward,
        late_rank=late_rank,
        late_ns=late_ns,
    )


def _part_of(total: float, beyond: Floats, more: Floats) -> float | None:
    """Return how much of ``total`` is of one kind; ``None`` where no slow step tells.

    ``beyond``: what each slow step takes beyond the median, ``more``: what it does of that kind.
    Steps that do not tell are taken to have the same share of it as those that do.
    """
    known = ~np.isnan(more)
    if not known.any():
        return None
    found = np.clip(more[known], 0.0, beyond[known]).sum()
    return total * float(found / beyond[known].sum())


_CONSEQUENCES = ("turn", "queue")
"""Stages that are long because another call is."""


def stalls(arrays: StepArrays) -> tuple[Stall, ...]:
    """Return the steps that stalled, the longest first; none of fewer than ``ENOUGH_STEPS``.

    A rank that comes late is seen by when its buckets were ready.  One that is stopped after it has
    launched them all looks like those that wait for it: then nobody is named.
    """
    usual, period = middle(arrays.exposed), middle(arrays.period)
    if len(arrays.steps) < ENOUGH_STEPS or np.isnan(usual) or np.isnan(period):
        return ()
    longest = np.fmax.reduce(arrays.exposed, axis=0).tolist()
    found = [
        _stall(arrays, s, usual) for s, ns in enumerate(longest) if is_stall(ns, usual, period)
    ]
    found += [
        Stall(step=step, exposed_ns=ns, usual_ns=usual, is_probed=True)
        for step, ns in arrays.probed.items()
        if is_stall(ns, usual, period)
    ]
    return tuple(sorted(found, key=lambda one: -one.exposed_ns))


def _stall(arrays: StepArrays, s: int, usual: float) -> Stall:
    i = int(np.nanargmax(arrays.exposed[:, s]))
    step, exposed, of = int(arrays.steps[s]), float(arrays.exposed[i, s]), arrays.detailed
    bucket, stage, apart = None, None, None
    late: tuple[int, ...] = ()
    if (place := of.place_of(step)) != UNKNOWN:
        bucket, stage = _longest_stage(of, i, place)
        late, apart = _late_ranks(of, place, i, (exposed - usual) / 2, bucket)
    return Stall(
        step=step, exposed_ns=exposed, usual_ns=usual, rank=arrays.ranks[i], bucket=bucket,
        stage=stage, late_ranks=late, spread_ns=apart,
    )  # fmt: skip


def _longest_stage(arrays: StepArrays, i: int, s: int) -> tuple[int | None, str | None]:
    """Return bucket and stage in which a rank was longest, but for waiting for its own calls.

    Of a sharded model of the unit that training waited for longest.
    """
    exposed, among = arrays.exposed_in[i, s], slice(None)
    if arrays.is_sharded and not np.isnan(exposed).all():
        among = slice(int(np.nanargmax(exposed)), int(np.nanargmax(exposed)) + 1)
    spent = {
        name: values[i, s, among]
        for name, values in arrays.stages.items()
        if name not in _CONSEQUENCES and not np.isnan(values[i, s, among]).all()
    }
    if not spent:
        return None, None
    stage = max(spent, key=lambda name: float(np.nanmax(spent[name])))
    return int(arrays.buckets[among][int(np.nanargmax(spent[stage]))]), stage


def _late_ranks(
    arrays: StepArrays, s: int, i: int, least: float, bucket: int | None
) -> tuple[tuple[int, ...], float | None]:
    """Return the ranks whose last bucket was ready ``least`` ns after that of the i-th one.

    Beyond what the two clocks may be off; and by how much ranks are apart.  Nobody and ``None``
    where not all ranks' times and clocks are known.  Of a sharded model it is ``bucket`` that they
    came to, of the ranks that are in it.
    """
    ranks, at = [*range(len(arrays.ranks))], np.ones(len(arrays.buckets), bool)
    if arrays.is_sharded:
        at = arrays.buckets == bucket
        together = (g.ranks for g in arrays.together if i in g.ranks and at[[*g.buckets]].any())
        ranks = [*next(together, ())]
    ready: Floats = arrays.called[ranks, s][:, at].max(axis=1, initial=-np.inf)
    unsure: Floats = arrays.uncertainty[ranks, s][:, at].max(axis=1, initial=-np.inf)
    if len(ready) < 2 or not (np.isfinite(ready) & np.isfinite(unsure)).all():
        return (), None
    own = ranks.index(i)
    late = np.flatnonzero(ready - ready[own] - unsure - unsure[own] >= least)
    return tuple(arrays.ranks[ranks[k]] for k in late.tolist()), float(np.ptp(ready))
