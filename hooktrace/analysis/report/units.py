"""What a sharded model's collectives amount to, kind by kind.

StepArrays --> KindFacts a kind; what a step waits for the last rank; what keeping parameters takes
"""

from __future__ import annotations

from math import prod

import numpy as np

from ...records import LayoutRecord, Unit
from .facts import BucketFacts, KindFacts, ModelFacts
from .step_arrays import Floats, StepArrays, middle

KINDS = (
    ("all_gather", "forward"),
    ("all_gather", "backward"),
    ("reduce_scatter", "backward"),
    ("all_reduce", "backward"),
)
"""In the order in which a step has them."""


def kind_facts(arrays: StepArrays) -> tuple[KindFacts, ...]:
    """Return the sums over each kind of collective; nothing of DDP's buckets."""
    indices = arrays.buckets.tolist()
    units = [arrays.units.get(index) for index in indices]
    sizes = np.fmax.reduce(arrays.column("gradient_bytes"), axis=(0, 1), initial=0)
    found = []
    for name in dict.fromkeys(u.kind for u in sorted(filter(None, units), key=in_order)):
        at = np.array([u is not None and u.kind == name for u in units])
        found.append(
            KindFacts(
                name=name,
                count=int(at.sum()),
                payload_bytes=int(sizes[at].sum()),
                duration_ns=_sum((arrays.done - arrays.ready)[..., at]),
                exposed_ns=_sum(arrays.exposed_in[..., at]),
                wait_ns=_sum(arrays.waited.ns[..., at]),
            )
        )
    return tuple(found)


def in_order(unit: Unit) -> int:
    """Return the place of a unit's kind of collective in a step."""
    at = unit.collective, unit.phase
    return KINDS.index(at) if at in KINDS else len(KINDS)


def is_synchronous(arrays: StepArrays) -> bool:
    """Return whether training waits for all of each unit's collective, from its call to its end."""
    took = arrays.done - arrays.ready
    known = ~np.isnan(arrays.exposed_in) & ~np.isnan(took)
    return bool(known.any()) and bool((arrays.exposed_in[known] >= took[known]).all())


def step_wait_ns(arrays: StepArrays) -> float | None:
    """Return what all units of a step wait for their last rank; ``None`` of DDP's buckets."""
    return _sum(arrays.waited.ns) if arrays.is_sharded else None


def step_sums(values: Floats) -> Floats:
    """Return the sums of what is known over the buckets of (R, S, B); NaN where nothing is."""
    known = ~np.isnan(values)
    found: Floats = np.where(known.any(axis=2), np.nansum(values, axis=2), np.nan)
    return found


def _sum(values: Floats) -> float | None:
    """Return the median over ranks and steps of the sum of what is known, (R, S, B)."""
    found = middle(step_sums(values))
    return None if np.isnan(found) else found


def gathered_twice(units: list[Unit]) -> set[str]:
    """Return the names of units whose parameters are gathered in forward, and in backward again."""
    phases = {(u.name, u.phase) for u in units if u.collective == "all_gather"}
    return {name for name, _ in phases if {(name, "forward"), (name, "backward")} <= phases}


def whole_bytes(arrays: StepArrays, layouts: list[LayoutRecord]) -> int | None:
    """Return the bytes of all parameters, as they are gathered, of units gathered twice.

    ``None`` where there are none, or no layout says their shapes.
    """
    twice = gathered_twice(list(arrays.units.values()))
    for layout in reversed(layouts):
        if layout.generation == arrays.generation:
            found = {
                b.unit.name: sum(prod(shape) for _, shape in b.parameters)
                * (b.gradient_bytes // b.numel)
                for b in layout.buckets
                if b.unit is not None and b.unit.collective == "all_gather" and b.numel
            }
            return sum(size for name, size in found.items() if name in twice) or None
    return None


def calls_of(model: ModelFacts, collective: str, phase: str | None = None) -> list[BucketFacts]:
    """Return the calls of one kind in a sharded model's step."""
    return [
        b for b in model.buckets
        if b.unit is not None and b.unit.collective == collective and phase in (None, b.unit.phase)
    ]  # fmt: skip


def payload_bytes(model: ModelFacts, *, gathered: bool) -> int:
    """Return the bytes of parameters that a step gathers, or of gradients that it reduces.

    Of one rank's payloads, before a hook makes them smaller; over all calls.
    """
    return sum(
        b.gradient_bytes
        for b in model.buckets
        if b.unit is not None and (b.unit.collective == "all_gather") == gathered
    )
