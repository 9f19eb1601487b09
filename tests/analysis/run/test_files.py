"""Which run is read, and what is no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.run.files import read_run
from hooktrace.records.errors import UsageError
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job


def test_a_job_that_hung_in_its_first_step_is_a_run(tmp_path: Path) -> None:
    """Though it has no step; a file without either holds nothing to tell."""
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1), tmp_path)
    assert read_run(tmp_path).model_names == ["synthetic"]
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1, killed=(0, 1, 2, 3)), tmp_path)
    with pytest.raises(UsageError, match="hold no step"):
        read_run(tmp_path)
