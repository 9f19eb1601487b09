"""What holds in any step: bytes, workers, stages in order, and ranks of different speeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.whatif.replay import replay
from hooktrace.analysis.whatif.step_tables import Case, tables_of
from hooktrace.analysis.whatif.work import Machine, Network

from .steps import bucket, work

durations = st.floats(0, 100)


@st.composite
def cases(draw: st.DrawFn, **limits: Any) -> Case:
    """Return a step of up to 6 buckets; in one of two, some of several rounds."""
    count = draw(st.integers(1, 6))
    ready = np.cumsum(draw(st.lists(durations, min_size=count, max_size=count)))
    rounds = draw(st.sampled_from([1, 3]))
    buckets = [
        bucket(
            i,
            *draw(st.lists(durations, min_size=1, max_size=rounds)),
            before=draw(durations),
            after=draw(durations),
        )
        for i in range(count)
    ]
    step = work(list(ready), buckets, end=ready[-1] + draw(durations), rest=draw(durations))
    machine = Machine(
        workers=draw(st.integers(1, 3)),
        cores=draw(limits.get("cores", st.sampled_from([0.5, 1.0, 1.5, 4.0]))),
        wire_cores=draw(st.sampled_from([0.0, 0.3, 1.0])),
        call_ns=draw(durations),
    )
    network = Network(draw(durations), bandwidth=draw(st.floats(0.1e9, 10e9)))
    return step, machine, network


RECORDED = json.loads(Path(__file__).with_name("recorded_steps.json").read_text())
"""Medians over the steps of real runs: two ranks on gloo, a link of 200 Mbit/s (23.9 MB/s of
payload), 16.8 MB of gradients, cap 1 MB; times from the later rank's first bucket."""


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one["run"])
def test_a_real_run_ends_when_it_did(recorded: dict[str, Any]) -> None:
    """Within 2 %, from its own ready times, compress and decompress."""
    columns = ("wire_bytes", "compress_us", "decompress_us")
    buckets = [
        bucket(i, sent, before=1e3 * before, after=1e3 * after)
        for i, (sent, before, after) in enumerate(zip(*(recorded[k] for k in columns), strict=True))
    ]
    step = work([1e3 * one for one in recorded["ready_us"]], buckets)
    machine = Machine(cores=8, call_ns=1e3 * recorded["call_us"])
    network = Network(0, recorded["bytes_per_second"], overhead_ns=0.4e6)
    times = replay(tables_of([(step, machine, network)], [[[1.0]]]))
    assert times.done.max() / 1e6 == pytest.approx(recorded["done_ms"], rel=0.02)


@settings(deadline=None, max_examples=50)
@given(cases(), st.floats(1, 2))
def test_stages_are_in_order_and_hold_a_worker_each(case: Case, slowest: float) -> None:
    _, machine, _ = case
    tables = tables_of([case], [[[1.0, slowest]]])
    times = replay(tables)
    for rank in range(2):
        ready, launched, done = (one[0, rank] for one in (times.ready, times.launched, times.done))
        in_order = np.stack(
            [one[0, rank] for one in (times.issued, times.started, times.met, times.arrived)]
        )
        assert np.isfinite(in_order).all()
        assert (np.diff(in_order, axis=0) >= -1e-6).all()
        assert (ready <= launched + 1e-6).all()
        assert (np.diff(ready) >= -1e-6).all()
        assert (ready <= done + 1e-6).all()
        # Rounds of a bucket follow each other.
        of = tables.bucket[0]
        inside = of[1:] == of[:-1]
        assert (in_order[0, 1:][inside] >= in_order[3, :-1][inside] - 1e-6).all()
        # A worker holds a round from its start until what follows its arrival was done.
        freed = np.array([in_order[3, at] + tables.callback_ns[0, at] for at in range(len(of))])
        for at in in_order[1]:
            held = (in_order[1] <= at + 1e-6) & (freed > at + 1e-3)
            assert held.sum() <= machine.workers
    # What goes over the link takes as long as it takes alone, if nothing else is there.
    alone = tables.latency_ns + tables.link_ns
    assert (times.arrived[0] - times.met[0] >= alone - 1e-3).all()
    assert times.arrived.max() >= tables.link_ns.sum() - 1e-3


@settings(deadline=None, max_examples=50)
@given(cases(cores=st.just(8.0)), st.lists(st.floats(1, 2), min_size=2, max_size=6))
def test_the_slowest_and_the_middle_rank_stand_for_all(case: Case, slowness: list[float]) -> None:
    """Of n ranks, what happens on each is the same as beside the slowest one alone."""
    slowest = max(slowness)
    everywhere = replay(tables_of([case], [[[1.0, *slowness]]]))
    for rank, own in enumerate(slowness, start=1):
        two = replay(tables_of([case], [[[1.0, own, slowest]]]))
        for of_all, of_two in ((everywhere.arrived, two.arrived), (everywhere.done, two.done)):
            assert of_all[0, rank] == pytest.approx(of_two[0, 1], rel=1e-9, abs=1e-6)
            assert of_all[0, 0] == pytest.approx(of_two[0, 0], rel=1e-9, abs=1e-6)
