"""Where ranks run, from processor time and calls of which one knows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.timeline import Timeline
from hooktrace.analysis.whatif.calibration import read_calibration

from .calibrated_run import MODEL, written
from .truth import Truth


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
