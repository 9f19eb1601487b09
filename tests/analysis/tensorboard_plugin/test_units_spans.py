"""Stretches of time by when they are: also those that began long before and are still on."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.tensorboard_plugin.units import Spans


def test_what_overlaps_is_inside_however_early_it_began() -> None:
    """Sorted by start; an end before its start is the start."""
    rows = np.array([7, 8, 9])
    spans = Spans(rows, np.array([50, 0, 10]), np.array([40, 100, 20]))
    assert spans.row.tolist() == [8, 9, 7]
    assert spans.end.tolist() == [100, 20, 50]
    assert spans.row[spans.inside(30, 45)].tolist() == [8]
    assert spans.row[spans.inside(50, 60)].tolist() == [8, 7]
    assert spans.row[spans.inside(101, 200)].tolist() == []
