"""Steps as arrays: the training thread's stretches, rounds in order, padding."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.whatif.step_tables import tables_of
from hooktrace.analysis.whatif.work import BucketWork, Machine, Network, RoundWork

from .steps import bucket, work

NETWORK = Network(latency_ns=10, bandwidth=1e9, overhead_ns=3)


def test_two_steps_side_by_side() -> None:
    long = work([5, 20, 90], [bucket(1, 100, 60, before=7, after=8), bucket(0), bucket(2, 50)])
    short = work([5], [bucket(0, 100, after=9)], end=30, rest=40)
    cases = [(long, Machine(call_ns=2), NETWORK), (short, Machine(), NETWORK)]
    tables = tables_of(cases, [[[1.0, 1.0]], [[1.0, 1.5]]])
    assert tables.buckets.tolist() == [3, 1]
    assert tables.rounds.tolist() == [3, 1]
    assert tables.serial.tolist() == [True, False]
    assert tables.call_ns.tolist() == [2, 0]
    # The second bucket's gradient came before the first's, after which backward computes 70.
    assert tables.compute_ns.tolist() == [[20, 0, 70, 0], [5, 25, 0, 0]]
    assert tables.compress_ns.tolist() == [[7, 0, 0], [0, 0, 0]]
    assert tables.has_rounds.tolist() == [[True, False, True], [True, False, False]]
    assert tables.bucket.tolist() == [[0, 0, 2], [0, 0, 0]]
    assert tables.is_last.tolist() == [[False, True, True], [True, False, False]]
    assert tables.waking_ns.tolist() == [3, 3]
    assert tables.latency_ns.tolist() == [[20, 20, 20], [20, 0, 0]]
    assert tables.link_ns.tolist() == [[100, 60, 50], [100, 0, 0]]
    assert tables.callback_ns.tolist() == [[7, 8, 0], [9, 0, 0]]
    assert np.array_equal(tables.slowness, [[1, 1], [1, 1.5]])
    # Slower by half in the 40 before the first gradient.
    assert tables.begin_ns.tolist() == [[0, 0], [0, 20]]


def test_halves_are_added_while_others_are_on_the_link() -> None:
    """A rank adds half of the elements; what takes longer counts: the link, or the core."""

    def on_link(adding_ns: float, wire_cores: float) -> float:
        one = BucketWork(0, 0, (RoundWork(0, "all_reduce", 100, adding_ns),), 0)
        case = work([5], [one]), Machine(wire_cores=wire_cores), NETWORK
        found: float = tables_of([case], [[[1.0, 1.0]]]).link_ns[0, 0]
        return found

    assert on_link(120, 0.5) == 110  # 50 of moving, 60 of adding
    assert on_link(90, 0.5) == 100
    assert on_link(0, 1.5) == 100  # what the wire takes of cores slows others down, not itself
