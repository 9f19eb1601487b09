"""Where ranks run, from processor time and calls of which one knows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration

from .calibrated_run import MODEL, written
from .truth import Truth, parameters


def test_transfers_that_take_no_processor(truth: Truth, calibrated: Timeline) -> None:
    """Where the process works as long as its training thread does, transfers take nothing."""
    found = read_calibration(calibrated, MODEL).machine
    assert found.wire_cores == pytest.approx(0, abs=0.01)
    assert (found.workers, found.cores) == (2, truth.machine.cores)


def test_processor_time_beyond_the_training_thread_is_the_wires(tmp_path: Path) -> None:
    """As a share of a core while something is on the wire."""
    timeline = written(Truth(noise=0.0, steps=30, wire_share=0.3), tmp_path)
    found = read_calibration(timeline, MODEL)
    assert found.machine.wire_cores == pytest.approx(0.3, abs=0.02)
    for track in timeline.tracks:  # others used the machine too
        track.records.computes[:] = [
            replace(one, thread_ns=one.processor_ns // 4) for one in track.records.computes
        ]
    assert read_calibration(timeline, MODEL).machine.wire_cores > 0.4


def test_more_ranks_than_cores_share_them(tmp_path: Path) -> None:
    """What the clock says of a thread is longer then than its work."""
    timeline = written(Truth(noise=0.0, steps=30), tmp_path)
    alone = read_calibration(timeline, MODEL)
    for track in timeline.tracks:
        track.records.computes[:] = [
            replace(one, thread_ns=one.processor_ns * 6 // 10) for one in track.records.computes
        ]
    # On cores enough for all, it waited for something else.
    assert read_calibration(timeline, MODEL).machine.cores == alone.machine.cores
    for track in timeline.tracks:
        assert track.records.run is not None
        track.records.run = replace(track.records.run, cores=1)
    shared = read_calibration(timeline, MODEL)
    share = shared.machine.cores
    assert share == pytest.approx(0.6, abs=0.02)
    assert shared.compute.end_ns == pytest.approx(alone.compute.end_ns * share)
    assert shared.compute.rest_ns == alone.compute.rest_ns
    assert shared.machine.turn_ns == pytest.approx(alone.machine.turn_ns / share)
    assert shared.machine.call_ns == pytest.approx(alone.machine.call_ns * share)
    work = alone.costs["allreduce"].bucket_work(parameters(5))[0][0].before_ns
    took = shared.costs["allreduce"].bucket_work(parameters(5))[0][0].before_ns
    assert took == pytest.approx(work * share)


def test_ranks_that_are_bound_to_a_core_each_have_it(tmp_path: Path) -> None:
    """They say that they may run on one, and compute all the time."""
    timeline = written(Truth(noise=0.0, steps=30), tmp_path)
    for track in timeline.tracks:
        assert track.records.run is not None
        track.records.run = replace(track.records.run, cores=1)
    assert read_calibration(timeline, MODEL).machine.cores == 1.0
