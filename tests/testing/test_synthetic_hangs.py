"""A made-up hang without end, in every file; one that went on is in golden documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.run import load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job

JOB = SyntheticJob(steps=20)


def test_a_hang_without_end_has_no_step_after_it(tmp_path: Path) -> None:
    """Nor the step itself; killed ranks have neither the record nor the file's end."""
    record = write_hung_job(JOB, SyntheticHang(step=12, killed=(2,)), tmp_path)
    tracks = load(find_records(tmp_path)).tracks
    assert [int(t.steps.step.max()) for t in tracks] == [11] * 4
    assert tracks[0].records.hangs == [record]
    assert [[h.since_ns for h in t.records.hangs] for t in tracks] == [
        [] if rank == 2 else [record.since_ns - JOB.offset_ns(rank)] for rank in range(4)
    ]
    assert [t.records.closed for t in tracks] == [True, True, False, True]
    with pytest.raises(ValueError, match="none of the job's 20"):
        write_hung_job(JOB, SyntheticHang(step=21), tmp_path)
