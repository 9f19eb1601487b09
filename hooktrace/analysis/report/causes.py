"""Why steps take as long as they do: who is late, which steps are slow, which bucket ends them.

StepArrays --> LateRank, SlowSteps, each bucket's share of the exposed tail, and what waited in it
"""

from __future__ import annotations

import numpy as np

from ...records.stall import ENOUGH_STEPS, is_stall
from ..timeline import UNKNOWN, Ints, last_rank
from .facts import LateRank, SlowSteps, Stall
from .last_of_group import (
    MOSTLY,
    WORTH,
    LastOfGroup,
    last_of_groups,
    late_at_units,
    late_at_units_in,
    waiting_ranks,
)
from .step_arrays import Floats, StepArrays, medians, middle, sums

SLOW = 1.5
"""A step is slow from so many median periods on."""


def late_ranks(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that are last often, and not by chance (``often``), the worst first.

    Those whose margin is below ``WORTH`` of the period, and those that nobody waits for, are left
    out.
    """
    if arrays.is_sharded:
        return late_at_units(arrays)
    found = (
        _late_rank(arrays, one, i)
        for one in last_of_groups(arrays)
        for i in np.unique(one.last[one.last >= 0]).tolist()
    )
    return tuple(sorted(filter(None, found), key=lambda one: -one.margin_ns))


def _late_rank(arrays: StepArrays, one: LastOfGroup, i: int) -> LateRank | None:
    """Return what is known of a rank; ``None``: it is last by chance, or nobody waits for it."""
    own = one.last == i
    worst = int(np.argmax(np.where(own, one.margin, 0.0).sum(axis=0) / one.seen))
    if not one.often_by(i)[worst]:
        return None
    called = arrays.called[..., worst]
    waiting = waiting_ranks(arrays.done[..., worst], called, i)
    if not waiting:
        return None
    after = called[i] - called[waiting].max(axis=0)
    if arrays.is_on_device:
        # A host that comes late may still be ahead of its device: others wait as their stages say.
        longest = np.nan_to_num(sums(arrays.waited.ns[waiting])).max(axis=0)
        after = np.minimum(after, longest)
    waited = float(np.where(own[:, worst], after, 0.0).sum() / one.seen[worst])
    if waited < WORTH * middle(arrays.period):
        return None
    behind = _beyond_others(arrays.called, i)
    held = _beyond_others(arrays.column("launched_after"), i)
    since = int(np.nanargmax(np.diff(behind, prepend=0.0)[: worst + 1]))
    return LateRank(
        rank=arrays.ranks[i],
        bucket=int(arrays.buckets[worst]),
        share=float(own[:, worst].sum() / one.seen[worst]),
        margin_ns=waited,
        uncertainty_ns=middle(one.unsure[:, worst]),
        lag_ns=float(behind[worst]),
        since=int(arrays.buckets[since]),
        waiting=tuple(arrays.ranks[j] for j in waiting),
        held_ns=max(0.0, float(np.nansum(held[:worst]))),
        is_late_from_the_start=since == 0,
    )


def _beyond_others(values: Floats, i: int) -> Floats:
    """Return by how much a rank is beyond the median of the others at each bucket, (buckets,)."""
    return medians(values[i] - np.median(np.delete(values, i, axis=0), axis=0), axis=0)


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
    exposed = _upper_medians(arrays.exposed)
    exposed_ns = _part_of(total, beyond, exposed[slow] - middle(exposed))
    late_rank, late_ns = None, 0.0
    if exposed_ns is not None and exposed_ns >= total / 4:  # else hardly anybody waits
        late_in = late_at_units_in if arrays.is_sharded else _late_in
        told = slow[~np.isnan(arrays.called[:, slow]).all(axis=(0, 2))]
        more = np.clip(exposed[told] - middle(exposed), 0.0, period[told] - usual)
        late_rank, late_ns = late_in(arrays, told, float(np.nansum(more)) / 2)
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


def _upper_medians(values: Floats) -> Floats:
    """Return the median over ranks, of an even number the upper middle: of two the one that waits.

    (R, S) --> (S,); NaN where nothing is known.
    """
    ordered = np.sort(values, axis=0)  # NaN comes last
    known = np.count_nonzero(~np.isnan(values), axis=0)
    at = np.minimum(known // 2, np.maximum(known - 1, 0))
    found: Floats = np.take_along_axis(ordered, at[None], axis=0)[0]
    return found


def _late_in(arrays: StepArrays, steps: Ints, least: float) -> tuple[int | None, float]:
    """Return who comes last in some steps, by ``least`` ns or more in all, and by how much at most.

    Beyond what clocks may be off; ``None`` and 0 for nobody, and where ranks take turns.
    """
    ready: Floats = arrays.called[:, steps].max(axis=2, initial=-np.inf)
    unsure: Floats = arrays.uncertainty[:, steps].max(axis=2, initial=-np.inf)
    last, margin, _ = last_rank(ready, unsure, np.isfinite(ready) & np.isfinite(unsure))
    sums = [float(margin[last == i].sum()) for i in range(len(ready))]
    i = int(np.argmax(sums))
    if not sums[i] or sums[i] < max(least, MOSTLY * sum(sums)):
        return None, 0.0
    done: Floats = arrays.done[:, steps].max(axis=2, initial=-np.inf)
    if len(waiting_ranks(done, ready, i)) < len(ready) - 1:
        return None, 0.0
    return arrays.ranks[i], float(margin[last == i].max())


def tails(arrays: StepArrays) -> Floats:
    """Return the exposed ns that each bucket adds, (ranks, steps, buckets).

    When backward has ended the backend finishes what is left, one bucket after another; the time
    until a bucket is done, since the one before it was, is what that bucket adds.  A step's sum is
    its exposed time.  Of a sharded model each unit adds what training waited for it.  NaN
    where a step has no such bucket, or does not tell.
    """
    if arrays.is_sharded:
        return arrays.exposed_in + 0 * arrays.exposed[..., None]
    all_done = np.fmax.reduce(arrays.done, axis=2, initial=np.nan)
    left = np.maximum(arrays.done - (all_done - arrays.exposed)[..., None], 0.0)
    order = np.argsort(left, axis=2, kind="stable")  # NaN comes last
    found: Floats = np.empty_like(left)
    added = np.diff(np.take_along_axis(left, order, axis=2), axis=2, prepend=0.0)
    np.put_along_axis(found, order, added, axis=2)
    return found


def tail_sums(arrays: StepArrays) -> Floats:
    """Return the exposed ns that each bucket adds in ordinary steps, (buckets,).

    Ordinary is the middle half of those that tell, by exposed time: the tail of a slow step has
    causes of its own.  NaN where no step tells.
    """
    added = tails(arrays)
    exposed = sums(added)
    low, high = middle(exposed, 0.25), middle(exposed, 0.75)
    return sums(added[(exposed >= low) & (exposed <= high)].T)


def tail_shares(arrays: StepArrays) -> Floats:
    """Return each bucket's share of the exposed time, (buckets,); zeros where nothing is exposed.

    NaN where no step tells.
    """
    added = tail_sums(arrays)
    return added / (np.nansum(added) or 1.0)


def waited_ns(arrays: StepArrays, stage: str) -> float:
    """Return the median, over ranks and steps, of min(exposed, stage of the bucket done last).

    ``stage``: queue or turn.  Such time costs nothing where it is hidden; what ends the step has
    waited for it.  NaN where no bucket is in that stage.
    """
    return middle(waits_at_end(arrays, stage))


def waits_at_end(arrays: StepArrays, stage: str) -> Floats:
    """Return min(exposed, stage of the bucket done last), (R, S); NaN without that stage."""
    if stage not in arrays.stages:
        return np.full_like(arrays.exposed, np.nan)
    last = np.argmax(np.nan_to_num(arrays.done, nan=-np.inf), axis=2)[..., None]
    found = np.take_along_axis(arrays.stages[stage], last, axis=2)[..., 0]
    return np.minimum(found, arrays.exposed)


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
    longest = np.fmax.reduce(arrays.exposed, axis=0)
    found = [
        _stall(arrays, s, usual)
        for s, ns in enumerate(longest.tolist())
        if is_stall(ns, usual, period)
    ]
    found += [
        Stall(step=step, exposed_ns=ns, usual_ns=usual, is_probed=True)
        for step, ns in arrays.probed.items()
        if is_stall(ns, usual, period)
    ]
    return tuple(sorted(found, key=lambda one: -one.exposed_ns))


def _stall(arrays: StepArrays, s: int, usual: float) -> Stall:
    exposed = arrays.exposed[:, s]
    i = int(np.nanargmax(exposed))
    bucket, stage = _longest_stage(arrays, i, s)
    late, spread = _late_ranks(arrays, s, i, float(exposed[i] - usual) / 2, bucket)
    return Stall(
        step=int(arrays.steps[s]),
        exposed_ns=float(exposed[i]),
        usual_ns=usual,
        rank=arrays.ranks[i],
        bucket=bucket,
        stage=stage,
        late_ranks=late,
        spread_ns=spread,
    )


def _longest_stage(arrays: StepArrays, i: int, s: int) -> tuple[int | None, str | None]:
    """Return bucket and stage in which a rank was longest, but for waiting for its own calls."""
    if arrays.is_sharded and not np.isnan(arrays.exposed_in[i, s]).all():
        b = int(np.nanargmax(arrays.exposed_in[i, s]))
        longest = {name: float(values[i, s, b]) for name, values in arrays.stages.items()}
        return int(arrays.buckets[b]), max(longest, key=longest.__getitem__, default=None)
    spent = {
        name: values[i, s]
        for name, values in arrays.stages.items()
        if name not in _CONSEQUENCES and not np.isnan(values[i, s]).all()
    }
    if not spent:
        return None, None
    stage = max(spent, key=lambda name: float(np.nanmax(spent[name])))
    return int(arrays.buckets[int(np.nanargmax(spent[stage]))]), stage


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
        (place,) = np.flatnonzero(at).tolist() or [UNKNOWN]
        groups = (g.ranks for g in arrays.together if i in g.ranks and place in g.buckets)
        ranks = [*next(groups, ())]
    ready: Floats = arrays.called[ranks, s][:, at].max(axis=1, initial=-np.inf)
    unsure: Floats = arrays.uncertainty[ranks, s][:, at].max(axis=1, initial=-np.inf)
    if len(ready) < 2 or not (np.isfinite(ready) & np.isfinite(unsure)).all():
        return (), None
    own = ranks.index(i)
    late = np.flatnonzero(ready - ready[own] - unsure - unsure[own] >= least)
    return tuple(arrays.ranks[ranks[k]] for k in late.tolist()), float(np.ptp(ready))
