"""Collectives that belong to no bucket: a row of their own in the tab, and rows in Perfetto."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.tensorboard_plugin import other_bars
from hooktrace.analysis.tensorboard_plugin.level_of_detail import picture
from hooktrace.analysis.tensorboard_plugin.plugin import as_strips
from tests.analysis.perfetto.test_export import exported
from tests.analysis.run.test_others import US, collective, run_with
from tests.analysis.runs import asking, tab_of

BUCKETS = 8
BARRIER = {"name": "barrier", "wire_bytes": 0, "where": "train.py:9"}


def test_a_row_below_the_buckets(tmp_path: Path) -> None:
    """As long as each was in flight; who issued it is told."""
    run = run_with(tmp_path, collective(10, 400), collective(500, None, **BARRIER))
    scene = tab_of(run)
    rows = scene.lanes - 1
    assert scene.others_lane == rows
    found = picture(scene, 0, scene.extent, 1000)["ranks"][1]
    first, second = found["others"]
    assert set(found["bars"]["lane"]) <= set(range(rows))
    assert (first["lane"], first["end"] - first["start"]) == (rows, 400 * US)
    assert (second["title"], second["end"]) == ("barrier, step 3 of net, rank 1", second["start"])
    assert first["text"] == (
        "4 kB of payload, in flight for 400 µs; issued at train.py:7 on MainThread"
    )
    assert second["text"].startswith("0 B of payload, its end is not known; issued at train.py:9")
    step = next(i for i, number in enumerate(scene.ranks[1].number.tolist()) if number == 3)
    assert first["start"] == scene.ranks[1].steps.start[step] + 10 * US
    (model,) = asking(tmp_path)("/run")["models"]
    assert model["others_lane"] == rows


def test_in_low_lanes_there_are_none(tmp_path: Path) -> None:
    """A strip is one row, of buckets."""
    scene = as_strips(tab_of(run_with(tmp_path, collective(10, 400))))
    assert picture(scene, 0, scene.extent, 1000)["ranks"][0]["others"] == []


def test_a_run_without_any_has_no_row(tmp_path: Path) -> None:
    scene = tab_of(run_with(tmp_path))
    assert scene.others_lane is None
    assert picture(scene, 0, scene.extent, 1000)["ranks"][0]["others"] == []


def test_of_many_the_longest_are_drawn(tmp_path: Path) -> None:
    run = run_with(tmp_path, *(collective(i, i + 1) for i in range(other_bars.MOST + 50)))
    scene = tab_of(run)
    found = picture(scene, 0, scene.extent, 1000)["ranks"][0]["others"]
    assert len(found) == other_bars.MOST
    assert min(one["end"] - one["start"] for one in found) == 51 * US


def test_rows_in_perfetto(tmp_path: Path) -> None:
    """One more where two overlap; a mark where no end is known."""
    run_with(tmp_path, collective(10, 400), collective(20, 5, **BARRIER), collective(500, None))
    _, events, _ = exported(tmp_path)
    own = [e for e in events if e.get("cat") == "other collective" and e["pid"] == 1]
    assert [(e["ph"], e["name"], e.get("dur")) for e in own] == [
        ("X", "all_reduce", 400.0), ("X", "barrier", 5.0), ("i", "all_reduce", None)
    ]  # fmt: skip
    assert own[0]["tid"] == own[2]["tid"] != own[1]["tid"]
    assert own[1]["args"] == {
        "step": 3, "model": "net", "wire_bytes": 0, "where": "train.py:9",
        "thread": "MainThread", "of_ddp": False,
    }  # fmt: skip
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1]
    assert names.count("other collectives") == 2
