"""Steps that stalled: communication that all waited for, seconds longer than they usually do.

StepArrays --> Stall of each such step: how long, where, and who came late, where that is known

A rank that comes late is seen by when its buckets were ready.  One that is stopped after it has
launched them all looks like those that wait for it: then nobody is named.
"""

from __future__ import annotations

import numpy as np

from ...records.stall import ENOUGH_STEPS, is_stall
from ..timeline import UNKNOWN
from .facts import Stall
from .step_arrays import Floats, StepArrays, middle

_CONSEQUENCES = ("turn", "queue")
"""Stages that are long because another call is."""


def stalls(arrays: StepArrays) -> tuple[Stall, ...]:
    """Return the steps that stalled, the longest first; none of fewer than ``ENOUGH_STEPS``."""
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
