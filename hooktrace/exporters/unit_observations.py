"""What the units of sharded models (FSDP2) say of the metrics table, in the place of buckets.

    layouts, units' collectives --observe_*--> columns, by unit, collective and phase

A bucket's number says little, and a sharded model has more collectives than there is room for
buckets.  So these are counted by the unit's name: of the first units of the first models, others
share ``other``.  Calls of one unit in several micro-steps add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..records import BucketRecord, LayoutRecord, Unit
from ..records import metrics as m

Labels = tuple[str, ...]


class UnitLabels:
    """The units that are told apart, of each model the first ``MAX_UNITS``."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, model: Labels, unit: Unit) -> Labels:
        """Return the label values of a unit's collective; ``model``: its name and hook."""
        known = self._known.get(model[0])
        if known is None and len(self._known) < m.MAX_MODELS:
            known = self._known[model[0]] = set()
        name = m.OTHER
        if known is not None and (unit.name in known or len(known) < m.MAX_UNITS):
            known.add(unit.name)
            name = unit.name
        return *model, name, unit.collective, unit.phase


def observe_units(
    labels: UnitLabels, calls: Sequence[BucketRecord], model: Labels, *, timed: bool
) -> Iterator[tuple[m.Metric, Sequence[Labels], Sequence[float]]]:
    """Yield columns of a step's collectives; ``timed``: its times enter statistics."""
    own = [(labels.of(model, call.unit), call) for call in calls if call.unit is not None]
    yield _column(m.UNIT_PAYLOAD, ((of, call.gradient_bytes) for of, call in own))
    # A counter has to see all steps, and what an opaque hook sends is known of few.
    sent = ((of, call.wire_bytes if call.sent is None else None) for of, call in own)
    yield _column(m.UNIT_WIRE, sent)
    errors = [(of, call.error) for of, call in own if call.error is not None and not call.shadow]
    yield _column(m.UNIT_ERROR, ((of, error.relative_l2) for of, error in errors))
    yield _column(m.UNIT_COSINE, ((of, error.cosine) for of, error in errors))
    yield _column(m.COMPRESSION_ERROR, ((of[:2], error.relative_l2) for of, error in errors))
    if timed:
        ended = [(of, call) for of, call in own if call.exception is None]
        yield _column(m.UNIT_EXPOSED, ((of, _seconds(call.exposed_ns)) for of, call in ended))
        yield _column(m.UNIT_DURATION, ((of, _seconds(call.duration_ns)) for of, call in ended))


def observe_layout(
    labels: UnitLabels, layout: LayoutRecord, model: Labels
) -> Iterator[tuple[m.Metric, Labels, float]]:
    """Yield a 0 for each collective that there is, from which its bytes are counted."""
    for entry in layout.buckets:
        if entry.unit is not None:
            yield m.UNIT_PAYLOAD, labels.of(model, entry.unit), 0


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _column(
    metric: m.Metric, values: Iterable[tuple[Labels, float | None]]
) -> tuple[m.Metric, Sequence[Labels], Sequence[float]]:
    known = [(labels, value) for labels, value in values if value is not None]
    return metric, [labels for labels, _ in known], [value for _, value in known]
