"""What a sharded model's collectives amount to, kind by kind.

StepArrays --> KindFacts a kind; what a step waits for the last rank; what keeping parameters takes
"""

from __future__ import annotations

import numpy as np

from ...records import UNIT_KINDS
from ..run.dense import Floats, StepArrays, known, known_middle, mean, middle, sums
from .facts import KindFacts, ModelFacts


def kind_facts(arrays: StepArrays) -> tuple[KindFacts, ...]:
    """Return the sums over each kind of collective; nothing of DDP's buckets.

    Medians of the steps that have any, since steps need not have the same collectives; of waits
    means, since whoever is last waits for nobody.
    """
    if not arrays.units:
        return ()
    units = [arrays.units.get(index) for index in arrays.buckets.tolist()]
    there = np.where(np.isnan(arrays.called), np.nan, 1.0)
    payload, duration = arrays.column("gradient_bytes"), arrays.done - arrays.ready
    columns = there, payload, duration, arrays.exposed_in, arrays.waited
    unknown = np.isnan(arrays.exposed_in) & ~np.isnan(there)  # as is then what all of them expose
    found = []
    for name in UNIT_KINDS:
        at = np.array([u is not None and u.kind == name for u in units])
        if not at.any():
            continue
        calls, size, took, exposed, wait = (sums(values[..., at]) for values in columns)
        exposed = np.where(unknown[..., at].any(axis=2), np.nan, exposed)
        kind = KindFacts(
            name=name,
            count=round(middle(calls)),
            fewest=round(np.nanmin(calls)),
            most=round(np.nanmax(calls)),
            payload_bytes=round(middle(size)),
            duration_ns=known_middle(took),
            exposed_ns=known_middle(exposed),
            wait_ns=known(mean(wait)),
            net_ns=known_middle(net_of_waits(exposed, wait)),
        )
        found.append(kind)
    return tuple(found)


def shares_of_steps(arrays: StepArrays) -> Floats:
    """Return in which share of the steps each collective is, (B,)."""
    there = ~np.isnan(arrays.called)
    steps = np.count_nonzero(there.any(axis=(0, 2)))
    found: Floats = np.count_nonzero(there.any(axis=0), axis=0) / max(1, steps)
    return found


def reduced_bytes(arrays: StepArrays) -> int | None:
    """Return the bytes of gradients that a rank gives to reduce-scatters in a step, the median."""
    arrays = arrays.detailed
    units = [arrays.units.get(index) for index in arrays.buckets.tolist()]
    at = np.array([u is not None and u.collective == "reduce_scatter" for u in units], bool)
    found = known_middle(sums(arrays.column("gradient_bytes")[..., at]))
    return None if found is None else round(found)


def is_synchronous(arrays: StepArrays) -> bool:
    """Return whether training waits for all of each unit's collective, from its call to its end.

    On a device it does not make a collective: what it waits for may have been queued before.
    """
    if arrays.is_on_device:
        return False
    took = arrays.done - arrays.ready
    known = ~np.isnan(arrays.exposed_in) & ~np.isnan(took)
    return bool(known.any()) and bool((arrays.exposed_in[known] >= took[known]).all())


def step_waits(arrays: StepArrays) -> Floats:
    """Return what ranks wait for the last one at the last bucket, or at all units, (R, S)."""
    if arrays.is_sharded:
        return sums(arrays.waited)
    return sums(arrays.waited[..., arrays.buckets == arrays.last])


def net_of_waits(exposed: Floats, waited: Floats) -> Floats:
    """Return what is exposed but for waiting, as far as that is known."""
    found: Floats = np.maximum(exposed - np.nan_to_num(waited), 0.0)
    return found


def are_alike(model: ModelFacts) -> bool:
    """Return whether all steps of a model have the same collectives."""
    return all(b.share_of_steps == 1 for b in model.buckets)


def payload_bytes(model: ModelFacts, *, gathered: bool) -> int:
    """Return the bytes of parameters that a step gathers, or of gradients that it reduces.

    Of one rank's payloads, before a hook makes them smaller; over all calls of a step.
    """
    return sum(
        one.payload_bytes for one in model.kinds if one.name.startswith("all-gather") == gathered
    )
