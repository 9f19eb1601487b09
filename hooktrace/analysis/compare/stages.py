"""Which stages of two sides are compared, and how they are called.

StepParts of both --Grouping: kinds that are one on both sides--> tables of parts, a step a row
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..report.step_arrays import Floats
from ..report.step_parts import KINDS
from .measure import Measures

TITLES = {
    "probe": "hooktrace's own probes",
    "turn": "turn",
    "compress": "compress",
    "queue": "queue",
    "wait": "wait for the last rank",
    "transfer": "wire transfer",
    "wire": "wire",
    "decompress": "decompress",
    "hook": "the hook's call",
    "pending": "the hook's future",
    "between": "between stages",
    "exposed": "exposed",
    "calls": "rest of the calls",
    "all_calls": "the hook's calls",
    "compute": "outside communication",
}
"""Of the parts of a step, by key."""

Grouping = dict[str, tuple[str, ...]]
"""Kinds of ``step_parts`` that are one part, by its key."""


def grouping(sides: Sequence[Measures]) -> Grouping:
    """Return what can be told apart on all sides.

    Of an opaque hook no stage is seen, so beside another hook only the exposed time is compared.
    """
    opaque = [is_opaque(one) for one in sides]
    if any(opaque) and not all(opaque):
        return {"exposed": KINDS}
    found: Grouping = {kind: (kind,) for kind in KINDS if any(_occurs(m, kind) for m in sides)}
    if any(one.facts.waits_unknown is not None for one in sides):
        for kind in ("wait", "transfer"):
            found.pop(kind, None)
        found["wire"] = ("wait", "transfer")
    return found


def is_opaque(one: Measures) -> bool:
    """Return whether no stage of the hook is seen, only its call and its future."""
    return _occurs(one, "hook") or _occurs(one, "pending")


def _occurs(one: Measures, kind: str) -> bool:
    at = KINDS.index(kind)
    return bool(one.parts.busy_in[at].any() or one.parts.exposed_in[at].any())


def exposed_parts(one: Measures, kinds: Sequence[str]) -> Floats:
    """Return the exposed time in some kinds together, (steps, buckets)."""
    found: Floats = one.parts.exposed_in[[KINDS.index(kind) for kind in kinds]].sum(axis=0)
    return found


def step_table(one: Measures, of: Grouping) -> dict[str, Floats]:
    """Return the parts of each step, by key, (steps,): they add up to its period."""
    parts = one.parts
    found = {key: exposed_parts(one, kinds).sum(axis=1) for key, kinds in of.items()}
    if "compress" in found or "exposed" not in found:
        found["compress"] = found.get("compress", np.zeros_like(parts.period)) + parts.compress
        found["calls"] = parts.calls
    else:
        found["all_calls"] = parts.calls + parts.compress
    found["compute"] = parts.period - sum(found.values())
    return found
