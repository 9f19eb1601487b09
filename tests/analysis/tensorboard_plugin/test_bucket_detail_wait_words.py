"""What of a wire is waiting, in a sentence: with a number, a rank, or why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail
from hooktrace.analysis.tensorboard_plugin.scene import Scene
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.test_path import write
from tests.analysis.runs import run_in, tab_of


def scene(folder: Path) -> Scene:
    return tab_of(run_in(folder))


def sentence(made: Scene, rank: int) -> str | None:
    found: str | None = bucket_detail(made, rank, 0)["waiting"]
    return found


def test_who_waits_and_for_whom(tmp_path: Path) -> None:
    write_job(SyntheticJob(ranks=3, steps=2, late_ms={2: 12.0}, jitter_ms=0.0), tmp_path)
    made = scene(tmp_path)
    assert sentence(made, 0) == "waits 12.0 ms for rank 2"
    assert sentence(made, 2) == "waits for nobody: it is the last rank"
    stages = [row[1:3] for row in bucket_detail(made, 0, 0)["stages"]]
    assert stages[1] == ["wire: wait", "12.000 ms"]
    assert stages[2][0] == "wire: transfer"
    assert [row[1] for row in bucket_detail(made, 2, 0)["stages"]] == [
        "compress", "wire", "decompress",
    ]  # fmt: skip


def test_ranks_that_the_clocks_do_not_tell_apart(tmp_path: Path) -> None:
    late = [(13.0, 13.0, 13.0, 20.0, 20.0)]
    write(tmp_path, [[[(1.0, 1.0, 1.0, 20.0, 20.0)], late, late]])
    made = scene(tmp_path)
    assert sentence(made, 0) == (
        "waits 12.0 ms; which rank is last is not told apart by the clocks"
    )
    assert sentence(made, 1) == "waits for nobody, as far as is known"


@pytest.mark.parametrize(("clocks", "gone", "told"), [
    (False, False, "for which rank is not known, because nobody measured the clock of ranks 1, 2"),
    (True, True, "how much of it is waiting is not known, because 2 of 3 ranks have a file here"),
])  # fmt: skip
def test_what_is_not_known(tmp_path: Path, clocks: bool, gone: bool, told: str) -> None:
    write_job(SyntheticJob(ranks=3, steps=2, late_ms={2: 12.0}, clocks=clocks), tmp_path)
    if gone:
        find_records(tmp_path)[2][0].unlink()
    assert told in (sentence(scene(tmp_path), 0) or "")


def test_a_collective_without_counterpart(tmp_path: Path) -> None:
    """Rank 0 was done before rank 1 began, so they were not in one."""
    write(tmp_path, [[[(0.0, 1.0, 1.0, 9.0, 9.0)], [(10.0, 12.0, 12.0, 30.0, 31.0)]]])
    assert sentence(scene(tmp_path), 0) == (
        "how much of it is waiting is not known, because its collective was not found on all ranks"
    )
