"""What the page shows as text, where the golden files do not have it already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.tensorboard_plugin.run_paths import RunPaths
from hooktrace.analysis.tensorboard_plugin.run_summary import summary_of
from hooktrace.analysis.tensorboard_plugin.words import (
    counted,
    heat_note,
    lists_of,
    path_sums_words,
    path_words,
    selection_words,
    time_text,
)
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of

JOB = SyntheticJob(ranks=4, steps=12, late_ms={2: 12.0}, anomaly_rank=1, jitter_ms=0.0)


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


def test_rows_of_lists_say_where_a_click_leads(tmp_path: Path) -> None:
    lists = lists_of(summary_of(tab_of(job_run(JOB, tmp_path))), "bucket")
    (late,) = lists["late"]
    assert (late["label"], late["rank"]) == ("rank 2: 12 of 12 steps", 2)
    assert late["value"] == "up to 12 ms"
    assert lists["slowest"][0]["label"] == f"step {lists['slowest'][0]['step']}"
    assert "has the most exposed: " in lists["slowest"][0]["text"]
    assert lists["anomalies"][0]["label"] == "nonfinite gradient, step 3, rank 1"
    assert lists["anomalies"][0]["at"] > 0
    assert lists["rebuilds"][0]["value"].startswith("8 buckets, step ")


def test_a_list_says_what_it_leaves_out() -> None:
    """And of a step whose exposed time is unknown nobody has the most."""
    step = {"step": 3, "rank": -1, "period": 5_000_000, "exposed": -1}
    summary: dict[str, Any] = {
        "slowest": [step], "exposed": [], "late": [], "late_note": "Not known: no step counts.",
        "anomalies": [], "anomaly_count": 31, "rebuilds": [],
    }  # fmt: skip
    lists = lists_of(summary, "bucket")
    assert lists["slowest"] == [{"label": "step 3", "value": "5 ms", "text": "", "step": 3}]
    assert lists["late"] == [{"note": "Not known: no step counts."}]
    assert lists["anomalies"] == [{"note": "and 31 more"}]


def test_small_parts_of_a_path_are_one_row() -> None:
    parts = [["compute of rank 2", 980], ["a", 5], ["b", 5], ["c", 10]]
    path = {"step": 4, "start": 0, "end": 1000, "parts": parts, "why_unknown": None}
    found = path_words(path)
    assert found["title"] == "Step 4 took 1 µs:"
    assert found["rows"] == [
        ("compute of rank 2", "980 ns, 98 %", 98.0),
        ("c", "10 ns, 1 %", 1.0),
        ("2 parts below 1 % each", "10 ns, 1 %", 1.0),
    ]
    one = path_words({**path, "parts": [["compute of rank 2", 995], ["a", 5]]})
    assert one["rows"][1] == ("a", "5 ns, < 1 %", 0.5)


def test_an_average_of_some_steps_says_of_how_many_it_is(tmp_path: Path) -> None:
    sums = RunPaths(tab_of(job_run(JOB, tmp_path))).sums
    some = path_sums_words({**sums, "of": 500})
    assert "of 12 of the 500 steps that count, chosen by chance" in some["title"]


def test_a_path_that_is_not_known_says_why() -> None:
    unknown = {"step": 4, "start": 0, "end": 0, "parts": [], "why_unknown": "nobody knows"}
    assert path_words(unknown) == {"title": "Step 4 has none: nobody knows.", "rows": []}
    assert path_sums_words(unknown) == {"title": "There is none: nobody knows.", "rows": []}


def test_a_heat_map_s_note_has_what_applies() -> None:
    plain = {"bin_steps": 1, "unknown": "", "unsure": 0}
    assert heat_note(plain) == ""
    found = heat_note({"bin_steps": 3, "unknown": "there is one rank", "unsure": 25_000})
    assert found.split(" · ") == [
        "3 steps a column, the largest is shown",
        "hatched: there is one rank",
        "clocks are known to 25 µs",
    ]


def test_a_selection_of_units_says_so() -> None:
    """A name may hold a comma; without exposed time there is no share."""
    times = dict.fromkeys(("busy", "sum", "mean", "p95", "low", "high"), 5)
    found = {
        "t0": 0, "t1": 3_000_000, "ranks": 1, "steps": 1, "buckets_counted": 1, "reach_in": 0,
        "reach_out": 0, "exposed": 0, "stages": [], "more_buckets": 2, "wire_not_split": "a reason",
        "buckets": [{"name": "a, b", "count": 1, "exposed": None, **times}],
    }  # fmt: skip
    words = selection_words(found, is_sharded=True)
    assert (words["row"], words["title"]) == ("unit", "3 ms selected")
    assert words["sentence"].startswith("1 collective begun in it (1 rank, 1 step)")
    assert words["explained"].endswith("not told apart into wait and transfer: a reason.")
    assert words["left"] == "and 2 more collectives"
    assert words["csv"].splitlines()[1] == 'unit,"a, b",1,5,5,5,5,5,5,'
