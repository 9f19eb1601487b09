"""What was on the wire together, and for how long."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.own_run import own_run
from hooktrace.analysis.whatif.transfers import busy_periods

from .calibrated_run import MODEL
from .truth import Truth


def test_a_busy_period_has_the_bytes_of_all_that_overlap(
    truth: Truth, calibrated: Timeline
) -> None:
    """All of a step's bytes, once, in all its periods; none is longer than they take together."""
    own = own_run(calibrated, MODEL)
    periods = busy_periods(calibrated, MODEL, own.arrays.steps, 1, own.sent)
    whole = sum(p.nbytes for p in truth.parameters)
    assert periods.ns.shape[0] == 2 * len(own.arrays.steps)
    for row in periods.ns:
        there = np.flatnonzero(~np.isnan(row))
        assert sum(s.wire_bytes for i in there for s in periods.compositions[i]) == whole
    sizes = np.array([sum(s.wire_bytes for s in one) for one in periods.compositions])
    took = np.nanmedian(periods.ns, axis=0)
    fixed = 2 * truth.network.latency_ns + truth.network.overhead_ns
    assert (took >= sizes / truth.network.bandwidth * 1e9 - 1000).all()
    assert (took <= sizes / truth.network.bandwidth * 1e9 + 2 * fixed).all()
