"""The tables of a sharded model, for the terminal and the page: kinds of collectives, and units."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...records.units import megabytes, milliseconds, percent
from .facts import BucketFacts, KindFacts, ModelFacts
from .tables import Columns, about_busbw, about_waits, busbw_of, stages_of
from .units import are_alike

LONGEST = 26
"""Letters of a unit's name, of which the last ones tell most."""


def kind_columns(model: ModelFacts) -> Columns:
    """Return a row for each kind of collective: sizes in MB, times in ms, sums of a step."""
    names = ["collective", "a step", "payload", "time", "wait", "exposed", "share"]
    period = model.period.p50 if model.period is not None else 0.0
    rows = []
    for one in model.kinds:
        share = one.exposed_ns / period if one.exposed_ns is not None and period else None
        times = map(milliseconds, (one.duration_ns, one.wait_ns, one.exposed_ns))
        payload = megabytes(one.payload_bytes)
        rows.append([one.name, _counts(one), payload, *times, percent(share)])
    return Columns(names, rows)


def _counts(kind: KindFacts) -> str:
    """Return how many there are in a step, from the fewest to the most."""
    return f"{kind.fewest}-{kind.most}" if kind.fewest < kind.most else str(kind.count)


def about_kinds() -> str:
    """Return what the columns of kinds are."""
    return (
        "sums of a step, medians, of wait the mean; payload: parameters that a rank gives to "
        "gathers, gradients to reductions, in MB; times in ms; share: exposed, of the step"
    )


def unit_columns(
    model: ModelFacts, buckets: Sequence[BucketFacts] | None = None, longest: int = LONGEST
) -> Columns:
    """Return a row for each unit's collective, or some: sizes in MB, times in ms."""
    stages = [name for name in stages_of(model) if name != "wire"]
    names = ["no.", "unit", "collective", "payload", "sent", "time", "p95", *stages]
    names += ["wait", "waits for", "exposed", "busbw", "error"]
    rows = [_row(b, stages, longest) for b in buckets or model.buckets]
    if not are_alike(model):
        names.append("steps")
        for b, row in zip(buckets or model.buckets, rows, strict=True):
            row.append(percent(b.share_of_steps))
    return Columns(names, rows)


def _row(b: BucketFacts, stages: list[str], longest: int) -> list[str]:
    assert b.unit is not None
    times = [*((b.duration.p50, b.duration.p95) if b.duration else (None, None))]
    name = b.unit.name
    again = f" #{b.unit.turn + 1}" if b.unit.turn else ""
    whom = "-" if b.waits_for is None else f"rank {b.waits_for.rank}, {percent(b.waits_for.share)}"
    return [
        str(b.bucket),
        name if len(name) <= longest else f"\u2026{name[1 - longest :]}",
        b.unit.kind + again,
        megabytes(b.gradient_bytes),
        megabytes(b.wire_bytes),
        *map(milliseconds, [*times, *map(b.stages.get, stages), b.wait_ns]),
        whom,
        milliseconds(b.exposed.p50 if b.exposed is not None else None),
        busbw_of(b),
        "-" if b.error is None else f"{b.error.p50:.2g}",
    ]


def about_units(model: ModelFacts, left_out: Collection[str] = ()) -> str:
    """Return what the columns of units are, without some that are not shown."""
    said = {
        "payload": "payload: a rank's parameters of a gather, gradients of a reduction, in MB",
        "unit": "times in ms",
        "exposed": "exposed: what training waits for it",
        "wait": about_waits(model, named="waits for" not in left_out),
        "busbw": about_busbw(model),
        "error": "error: relative L2",
        "steps": "" if are_alike(model) else "steps: which share of them has it",
    }
    return "; ".join(what for name, what in said.items() if what and name not in left_out)
