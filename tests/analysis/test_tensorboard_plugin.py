"""What the tab shows of a run, and how little: pictures, heat map, a bucket, lists, search.

Of whole jobs it is in ``golden/``; what a browser makes of it is in ``tests/browser``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.pictures import step_pictures
from hooktrace.analysis.run.parts import union_of_groups
from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.tensorboard_plugin import heat_map as heat_map_module
from hooktrace.analysis.tensorboard_plugin import level_of_detail
from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail
from hooktrace.analysis.tensorboard_plugin.heat_map import MAX_BINS, VALUES, heat_map, run_bands
from hooktrace.analysis.tensorboard_plugin.level_of_detail import MAX_MARKS
from hooktrace.analysis.tensorboard_plugin.run_summary import MAX_LISTED, lists_of, step_of
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.analysis.tensorboard_plugin.search import MAX_RESULTS, search
from hooktrace.records import CompletedStep
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.records.intervals import union_ns
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import (
    MS,
    Times,
    add,
    collective,
    run_of,
    steps_of,
    text_of,
    write_others,
    write_ranks,
    write_times,
)
from tests.analysis.runs import arrays_of, drawn, job_run, run_in, tab_of
from tests.exporters.records_sample import STEP_NS, checked, make_anomaly, make_layout


def scene(folder: Path, steps: list[CompletedStep]) -> Scene:
    """Return the scene of one rank with these steps."""
    write_ranks(folder, {0: text_of(run_of(0), steps)})
    return tab_of(run_in(folder))


def count(found: dict[str, Any], what: str) -> int:
    return sum(len(r[what]["lane"]) for r in found["ranks"])


def test_narrow_buckets_are_merged_with_their_shares(tmp_path: Path) -> None:
    """2 ms of which 5 % compress, 20 % queue, 50 % wire, 25 % decompress."""
    found = drawn(scene(tmp_path, steps_of(5)), 0, 5 * STEP_NS, 6)
    (rank,) = found["ranks"]
    assert rank["bars"]["lane"] == []
    assert found["bin_ns"] == 25 * MS  # two bins of 3 px
    bins = rank["bins"]
    assert list(zip(bins["lane"], bins["bin"], bins["count"], strict=True)) == [
        (0, 0, 3), (0, 1, 2), (1, 0, 3), (1, 1, 2),
    ]  # fmt: skip
    assert bins["cover"] == [24, 16, 24, 16]
    assert bins["shares"] == [0, 0, 5, 20, 50, 25, 0, 0, 0, 0] * 4


def test_limits_hold_where_they_bite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer bars and wider bins, but no bucket is lost; steps all or none."""
    for name, most in (("MAX_STEPS", 49), ("MAX_BARS", 10), ("MAX_BINS", 12)):
        monkeypatch.setattr(level_of_detail, name, most)
    made = scene(tmp_path, steps_of(50))
    found = drawn(made, 0, 50 * STEP_NS, 5000)
    assert count(found, "bars") <= 10
    assert 0 < count(found, "bins") <= 12
    assert sum(found["ranks"][0]["bins"]["count"]) + count(found, "bars") == 100
    assert found["ranks"][0]["steps"]["step"] == []
    assert len(drawn(made, 0, 49 * STEP_NS - 1, 5000)["ranks"][0]["steps"]["step"]) == 49
    part = drawn(made, 20 * STEP_NS, 25 * STEP_NS - 1, 5000)
    assert sum(part["ranks"][0]["bins"]["count"]) + count(part, "bars") == 10


def test_of_many_other_collectives_the_longest_are_drawn(tmp_path: Path) -> None:
    write_others(tmp_path, *(collective(i, i + 1) for i in range(MAX_MARKS + 50)))
    made = tab_of(run_in(tmp_path))
    found = drawn(made, 0, made.extent, 1000)["ranks"][0]["others"]
    assert len(found) == MAX_MARKS
    assert min(one["end"] - one["start"] for one in found) == 51_000


def map_of(folder: Path, value: str, columns: int = 1000) -> tuple[dict[str, Any], Any]:
    """Return the answer, and its cells as (ranks, columns)."""
    found = heat_map(tab_of(run_in(folder)), value, columns)
    return found, np.array(found["cells"]).reshape(len(found["ranks"]), -1)


def test_a_bin_of_steps_shows_the_slowest_and_says_which(tmp_path: Path) -> None:
    job = SyntheticJob(ranks=2, steps=10, late_ms={1: 9.0}, late_every=7, jitter_ms=0.0)
    write_job(job, tmp_path)
    found, delay = map_of(tmp_path, "delay", 4)
    assert (found["bin_steps"], found["step"], found["steps"]) == (3, [1, 4, 7, 10], 10)
    assert delay[1].tolist() == [9 * MS, 0, 9 * MS, 0]  # steps 1 and 8
    assert np.array(found["at"]).reshape(2, 4)[1].tolist() == [0, 0, 1, 0]


def test_a_heat_map_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for; and a question that means nothing is told so."""
    write_job(SyntheticJob(ranks=3, steps=40), tmp_path)
    monkeypatch.setattr(heat_map_module, "MAX_CELLS", 30)
    for value in VALUES:
        assert map_of(tmp_path, value, 10**6)[1].size <= 30
    with pytest.raises(NotThereError, match="exposed, delay"):
        map_of(tmp_path, "speed")
    with pytest.raises(ValueError, match="columns must be"):
        map_of(tmp_path, "delay", 0)


def test_unions_of_groups_are_the_unions_of_each() -> None:
    """Also of groups without intervals, and far apart in time."""
    random = np.random.default_rng(0)
    group = random.integers(0, 7, 200) * 2
    start = random.integers(0, 50, 200) + group * 10**12
    end = start + random.integers(0, 9, 200)
    assert union_of_groups(group, start, end, 15).tolist() == [
        union_ns(zip(start[group == g].tolist(), end[group == g].tolist(), strict=True))
        for g in range(15)
    ]


def test_a_long_run_has_several_steps_a_bin(tmp_path: Path) -> None:
    """No more bins than the strip has room for, and the slow step is the most of its own."""
    job = SyntheticJob(ranks=1, steps=700, bucket_bytes=(4_000_000,), slow_every=600)
    bands = run_bands(tab_of(job_run(job, tmp_path)))
    assert len(bands["exposed"]["start"]) == 234 <= MAX_BINS
    slow = bands["exposed"]["most_step"][int(np.argmax(bands["exposed"]["most"]))]
    assert slow in {1, 601}
    assert bands["exposed"]["last"][-1] == 700
    assert bands["period"]["last"][-1] == 699  # the last step has no period


def test_details_are_those_of_the_record(tmp_path: Path) -> None:
    step, buckets = checked(steps_of(1)[0])
    made = scene(tmp_path, [(step, (buckets[0], replace(buckets[1], exception="ValueError: no")))])
    first = bucket_detail(made, 0, row=0)
    assert first["title"] == "bucket 0, step 0, rank 0"
    assert first["times"][0] == ["ready to done", "2.000 ms"]
    assert first["stages"][1] == [3, "queue", "0.400 ms", "derived"]
    assert first["bytes"][1] == ["on the wire", "2 kB (2 times less)"]
    assert first["error"][:2] == [["relative L2", "0.25"], ["vNMSE", "0.0625"]]
    assert first["worst"] == [["layer0.bias", "inf"]]
    last = bucket_detail(made, 0, row=1)
    assert last["exception"] == "ValueError: no"
    assert dict(last["what"])["marks"] == "is last, exception"
    for rank, where in ((0, {"row": 2}), (0, {"row": -1}), (1, {"row": 0})):
        with pytest.raises(NotThereError):
            bucket_detail(made, rank, **where)
    with pytest.raises(NotThereError, match="rank 0 has no bucket 1 in step"):
        bucket_detail(made, 0, bucket=1, step=3)


def test_bus_bandwidth_is_of_the_transfer(tmp_path: Path) -> None:
    """Rank 0 waits for 5 of some 9 ms; of one file alone nobody knows what is waiting."""
    job = SyntheticJob(ranks=2, steps=4, late_ms={1: 5.0}, jitter_ms=0.0)
    made = tab_of(job_run(job, tmp_path))
    record_path(tmp_path, 1).unlink()
    alone = tab_of(run_in(tmp_path))
    waiting, late = (dict(bucket_detail(made, rank, row=0)["bytes"]) for rank in (0, 1))
    assert waiting["bus bandwidth"] == late["bus bandwidth"]
    name, rate = bucket_detail(alone, 0, row=0)["bytes"][-1]
    assert name == "bus bandwidth, with what it waits"
    assert float(rate.split()[0]) < 0.6 * float(late["bus bandwidth"].split()[0])


_LATE = [(13.0, 13.0, 13.0, 20.0, 20.0)]


@pytest.mark.parametrize(("ranks", "told"), [
    ([[(1.0, 1.0, 1.0, 20.0, 20.0)], _LATE, _LATE],
     ["waits 12 ms; the clocks do not show which rank is last",
      "waits for nobody, as far as is known"]),
    ([[(0.0, 1.0, 1.0, 9.0, 9.0)], [(10.0, 12.0, 12.0, 30.0, 31.0)]],
     ["how much of it is waiting is not known, because its collective was not found on all ranks"]),
], ids=["two come last", "done before the other began"])  # fmt: skip
def test_what_is_not_known_of_a_wait_is_said(
    tmp_path: Path, ranks: list[list[Times]], told: list[str]
) -> None:
    write_times(tmp_path, [ranks])
    made = tab_of(run_in(tmp_path))
    assert [bucket_detail(made, rank, row=0)["waiting"] for rank in range(len(told))] == told


def test_the_typical_step_is_the_reports(tmp_path: Path) -> None:
    """Where few have their buckets in the file, one of these; while none counts there is none."""
    run = job_run(SyntheticJob(ranks=2, steps=40, slow_every=3), tmp_path / "a")
    (typical, _), *_ = step_pictures(arrays_of(run))
    assert typical.startswith(f"Typical step: {step_of(tab_of(run), None)['step']}, ")
    steps = [
        (replace(record, detail_kept=record.step == 4), buckets if record.step == 4 else ())
        for record, buckets in steps_of(6)
    ]
    assert step_of(scene(tmp_path / "b", steps), None)["step"] == 4
    warming_up = [(replace(record, warmup=True), buckets) for record, buckets in steps_of(1)]
    with pytest.raises(NotThereError, match="no step counts yet"):
        step_of(scene(tmp_path / "c", warming_up), None)


def test_a_short_step_is_not_shown_as_zero(tmp_path: Path) -> None:
    """The lists have the units that the page writes times in."""
    steps = [
        (replace(record, previous_period_ns=2_500 if record.step else None), buckets)
        for record, buckets in steps_of(4)
    ]
    assert {row["value"] for row in lists_of(scene(tmp_path, steps))["slowest"]} == {"2.5 µs"}


def test_a_step_of_no_length_has_a_picture(tmp_path: Path) -> None:
    """All of its times are the same, as a coarse clock has them."""
    write_times(tmp_path, [[[(1.0,) * 5]] * 2] * 3)
    pictures = step_pictures(arrays_of(run_in(tmp_path)))
    assert pictures
    for _, draw in pictures:
        assert "nan" not in str(draw()).lower()


def test_lists_have_steps_without_detail_and_say_what_they_leave_out(tmp_path: Path) -> None:
    """A file that keeps few steps in detail says of all how long they took."""
    steps = [
        (replace(record, detail_kept=record.step < 2), buckets if record.step < 2 else ())
        for record, buckets in steps_of(6)
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    add(tmp_path, 0, *[make_anomaly(0)] * (MAX_LISTED + 4))
    lists = lists_of(tab_of(run_in(tmp_path)))
    assert {row["step"] for row in lists["exposed"]} == set(range(6))
    assert {row["step"] for row in lists["slowest"]} == set(range(5))
    assert lists["anomalies"][MAX_LISTED:] == [{"note": "and 4 more"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Four ranks, eight buckets, one anomaly of rank 1 in step 3."""
    job = SyntheticJob(steps=6, anomaly_rank=1)
    return tab_of(job_run(job, tmp_path_factory.mktemp("search")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", [("step", "step 3"), ("bucket", "bucket 3"), ("rank", "rank 3")]),
        ("Bucket 7", [("bucket", "bucket 7")]),
        ("r2", [("rank", "rank 2")]),
        ("LAYERS.5.W", [("parameter", "layers.5.weight")]),
        ("nonfinite gradient", [("anomaly", "nonfinite gradient, step 3, rank 1")]),
        ("bucket 8", []),
        ("99999999999999999999", []),
        ("  ", []),
        ("w", []),
    ],
)
def test_each_kind_is_found(made: Scene, text: str, found: list[tuple[str, str]]) -> None:
    """A number alone is all that it may be; one letter would find everything."""
    assert [(one["kind"], one["title"]) for one in search(made, text)["results"]] == found


def test_a_parameter_is_in_the_buckets_of_the_newest_layout(tmp_path: Path) -> None:
    """DDP rebuilds them."""
    layout = make_layout()
    name = layout.buckets[0].parameters[0].name
    first = replace(layout, model="net", rebuild=1, step=0)
    moved = tuple(replace(b, bucket=1 - b.bucket) for b in layout.buckets[:2])
    second = replace(layout, model="net", rebuild=2, step=2, buckets=moved)
    lines = b"".join(map(RecordEncoder().record, (first, second))).decode()
    write_ranks(tmp_path, {0: text_of(run_of(0), steps_of(4), ended=False) + lines})
    results = search(tab_of(run_in(tmp_path)), name)["results"]
    found = [(one["bucket"], one["first"]) for one in results if one["title"] == name]
    assert found == [(1, 2)]


def test_a_search_is_bounded(tmp_path: Path) -> None:
    """Of a hundred parameters the first are listed; a model that is not there has none."""
    job = SyntheticJob(ranks=1, steps=1, bucket_bytes=(4000,) * 100)
    answer: dict[str, Any] = search(tab_of(job_run(job, tmp_path)), "weight")
    assert (len(answer["results"]), answer["more"]) == (MAX_RESULTS, True)
    nothing = {"results": [], "more": False}
    assert search(Scene(run_in(tmp_path), "none"), "we") == nothing
