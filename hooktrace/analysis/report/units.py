"""What a sharded model's collectives amount to, kind by kind.

StepArrays --> KindFacts a kind; in which steps each is; whether training waits for all of each
"""

from __future__ import annotations

import numpy as np

from ...records import UNIT_KINDS
from ..run import Bools
from ..run.dense import Floats, StepArrays, known, known_middle, mean, middle, sums
from .facts import KindFacts


def kind_facts(arrays: StepArrays) -> tuple[KindFacts, ...]:
    """Return the sums over each kind of collective; nothing of DDP's buckets.

    Medians of the steps that have any, since steps need not have the same collectives; of waits
    means, since whoever is last waits for nobody.
    """
    there = np.where(np.isnan(arrays.called), np.nan, 1.0)
    payload, duration = arrays.column("gradient_bytes"), arrays.done - arrays.ready
    columns = there, payload, duration, arrays.exposed_in, arrays.waited
    unknown = np.isnan(arrays.exposed_in) & ~np.isnan(there)  # as is then what all of them expose
    found = []
    for name in UNIT_KINDS if arrays.units else ():
        at = _being(arrays, "kind", name)
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
        )
        found.append(kind)
    return tuple(found)


def _being(arrays: StepArrays, field: str, value: str) -> Bools:
    """Return which buckets are units' collectives that have a value, (B,)."""
    units = (arrays.units.get(index) for index in arrays.buckets.tolist())
    return np.array([getattr(unit, field, None) == value for unit in units], bool)


def reduced_bytes(arrays: StepArrays) -> int | None:
    """Return the bytes of gradients that a rank gives to reduce-scatters in a step, the median."""
    arrays = arrays.detailed
    at = _being(arrays, "collective", "reduce_scatter")
    found = known_middle(sums(arrays.column("gradient_bytes")[..., at]))
    return None if found is None else round(found)


def shares_of_steps(arrays: StepArrays) -> Floats:
    """Return in which share of the steps each collective is, (B,)."""
    there = ~np.isnan(arrays.called)
    steps = np.count_nonzero(there.any(axis=(0, 2)))
    found: Floats = np.count_nonzero(there.any(axis=0), axis=0) / max(1, steps)
    return found


def is_synchronous(arrays: StepArrays) -> bool:
    """Return whether training waits for all of each unit's collective, from its call to its end.

    On a device it does not make a collective: what it waits for may have been queued before.
    """
    took, exposed = arrays.done - arrays.ready, arrays.exposed_in
    known = ~np.isnan(exposed) & ~np.isnan(took) & (not arrays.is_on_device)
    return bool(known.any()) and bool((exposed[known] >= took[known]).all())
