"""Which steps the lists of the tab hold, and which step is the typical one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.pictures import step_pictures
from hooktrace.analysis.tensorboard_plugin.run_summary import (
    MAX_LISTED,
    counted,
    lists_of,
    step_of,
    time_text,
)
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.run.files import Completed, add, run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import arrays_of, job_run, run_in, tab_of
from tests.analysis.tensorboard_plugin.test_level_of_detail import scene
from tests.exporters.records_sample import make_anomaly


def test_the_typical_step_is_the_reports(tmp_path: Path) -> None:
    run = job_run(SyntheticJob(ranks=2, steps=40, slow_every=3), tmp_path)
    found = step_of(tab_of(run), None)
    (typical, _), *_ = step_pictures(arrays_of(run))
    assert typical.startswith(f"Typical step: {found['step']}, ")


def typical_in(folder: Path, steps: list[Completed]) -> int:
    made = scene(folder, steps)
    return step_of(made, None)["step"]


def test_a_typical_step_has_its_buckets_in_the_file(tmp_path: Path) -> None:
    """It is shown, and would be empty; while none counts there is none."""
    for kept in (1, 4):
        steps = [
            (replace(record, detail_kept=record.step == kept), buckets)
            if record.step == kept
            else (replace(record, detail_kept=False), ())
            for record, buckets in steps_of(6)
        ]
        assert typical_in(tmp_path / str(kept), steps) == kept
    warming_up = [(replace(record, warmup=True), buckets) for record, buckets in steps_of(1)]
    with pytest.raises(NotThereError, match="no step counts yet"):
        typical_in(tmp_path / "begun", warming_up)


def test_steps_without_detail_are_in_the_lists(tmp_path: Path) -> None:
    """A file that keeps few steps in detail says of all how long they took."""
    steps = [
        (replace(record, detail_kept=record.step < 2), buckets if record.step < 2 else ())
        for record, buckets in steps_of(6)
    ]
    lists = lists_of(scene(tmp_path, steps))
    assert {row["step"] for row in lists["exposed"]} == set(range(6))
    assert {row["step"] for row in lists["slowest"]} == set(range(5))


def test_a_list_says_what_it_leaves_out(tmp_path: Path) -> None:
    """And a step of which no exposed time is known has none that is the most."""
    record, buckets = steps_of(1)[0]
    write_ranks(
        tmp_path, {0: text_of(run_of(0), [(replace(record, exposed_ns=None), buckets)] * 2)}
    )
    add(tmp_path, 0, *[make_anomaly(0)] * (MAX_LISTED + 4))
    lists = lists_of(tab_of(run_in(tmp_path)))
    assert [row["text"] for row in lists["slowest"]] == [""] * len(lists["slowest"])
    assert lists["anomalies"][MAX_LISTED:] == [{"note": "and 4 more"}]


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_234, "1.23 µs"), (12_345_678, "12.3 ms"),
        (999_600_000, "1000 ms"), (1_500_000_000, "1.5 s"), (90_000_000_000, "1.5 min"),
    ],
)  # fmt: skip
def test_times_have_three_digits(ns: int, expected: str) -> None:
    assert time_text(ns) == expected


def test_one_is_no_plural() -> None:
    assert (counted(1, "rank"), counted(1024, "rank")) == ("1 rank", "1,024 ranks")
