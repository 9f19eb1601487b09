"""What the metrics table says of hangs: how many there were, and since when one goes on.

HangRecord --of_hang--> observations; from_zero: those of a model that has had none
"""

from __future__ import annotations

from collections.abc import Iterator

from ..records import HangRecord
from ..records import metrics as m
from ..records.hang import HANGS

_Observation = tuple[m.Metric, tuple[str, ...], float]


def of_hang(hang: HangRecord) -> Iterator[_Observation]:
    """Yield what a record says; one of an end counts for nothing, and nothing goes on any more."""
    lasts, model = hang.ended_after_ns is None, (hang.model, hang.hook)
    yield (m.HANGS, (*model, hang.kind), int(lasts))
    yield (m.HANG_START, model, hang.since_wall_ns / 1e9 if lasts else 0)


def from_zero(model: tuple[str, ...]) -> Iterator[_Observation]:
    """Yield the first values of a model's series, named with its hook."""
    for kind in HANGS:
        yield (m.HANGS, (*model, kind), 0)
    yield (m.HANG_START, model, 0)
