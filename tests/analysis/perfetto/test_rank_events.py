"""The events of one rank: slices that nest, names as they are, arrows and hangs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.perfetto.rank_events import RankEvents, arrows_of
from hooktrace.analysis.run import Hang
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.perfetto.test_export import exported
from tests.analysis.perfetto.trace_events import Event, ns
from tests.analysis.report.sharded_jobs import ShardedJob
from tests.analysis.run.files import moved, run_of, steps_of, text_of, write_ranks
from tests.analysis.run.test_others import collective, run_with
from tests.analysis.runs import job_run, tab_of
from tests.exporters.records_sample import (
    STEP_NS,
    make_step,
    on_device,
)


def test_steps_that_overlap_and_device_times_stay_valid(tmp_path: Path) -> None:
    """Buckets go to a second row where they overlap; a device step ends with its buckets."""
    one, other = make_step(1), moved(make_step(2), lambda t: t - 9_500_000)
    steps = [on_device(make_step(0)), one, other, on_device(make_step(5), resolved=False)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), steps)})
    _, events, _ = exported(tmp_path)
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert "net: bucket 0 (overlap 1)" in rows
    first = next(e for e in events if e["name"] == "step 0")
    last = max(
        ns(e["ts"] + e["dur"])
        for e in events
        if e["ph"] == "X" and e["pid"] == 0 and e["cat"] == "bucket" and e["args"]["step"] == 0
    )
    assert ns(first["ts"] + first["dur"]) == last
    marks = [e for e in events if e["name"] == "last bucket ready" and e["pid"] == 0]
    assert ns(marks[0]["ts"]) == 2_000_000  # of the device; the host called that hook after 1 ms
    assert {e["ts"] < STEP_NS / 1000 for e in events if e["ph"] in "sf"} == {False}


def test_names_may_hold_anything(tmp_path: Path) -> None:
    """Quotes, angle brackets and other alphabets come back as they were."""
    name = 'net "a" </script> <b>ü\n'
    steps = [
        (replace(step, model=name), tuple(replace(b, model=name) for b in buckets))
        for step, buckets in steps_of(2)
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    _, events, _ = exported(tmp_path)
    rows = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {f"{name}: steps", f"{name}: bucket 0", f"{name}: bucket 1"}


def test_units_of_a_row_that_overlap_go_to_a_second_one(tmp_path: Path) -> None:
    """As asynchronous gathers do: slices of a row come by their start, whatever their number."""
    first, second = (steps[0] for steps in ShardedJob(ranks=2, steps=1).completed())
    step, calls = first
    early = tuple(
        replace(b, done_ns=b.done_ns + 4_000_000_000) if b.bucket == 0 else b for b in calls
    )
    write_ranks(tmp_path, {0: text_of(run_of(0), [(step, early)]), 1: text_of(run_of(1), [second])})
    _, events, _ = exported(tmp_path)
    rows = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    assert "net: all-gather (forward) (overlap 1)" in rows


@pytest.mark.parametrize("tells", [True, False])
def test_of_hybrid_sharding_arrows_stay_within_a_group(tells: bool, tmp_path: Path) -> None:
    """Ranks 0 and 1 gather together, and 2 and 3; 0 and 2 reduce.  Where nobody says so, none."""
    job = Replicated(ranks=4, replicas=2, steps=3, late_ms={3: 4.0}, tells_members=tells)
    write_sharded_job(job, tmp_path)
    _, events, _ = exported(tmp_path, "plain.json")
    joined: dict[int, set[int]] = {}
    for e in events:
        if e["ph"] in "stf":
            joined.setdefault(e["id"], set()).add(e["pid"])
    together = {frozenset(ranks) for ranks in joined.values()}
    every = {frozenset(pair) for pair in ((0, 1), (2, 3), (0, 2), (1, 3))}
    assert together == (every if tells else set())


HUNG = SyntheticJob(steps=20)


def events_of(folder: Path, hang: SyntheticHang) -> list[Event]:
    """Export a job that hung; return the events of the hang, by rank."""
    write_hung_job(HUNG, hang, folder)
    found, events, _ = exported(folder)
    assert found.slices == sum(e["ph"] in "XB" for e in events)
    return sorted((e for e in events if e.get("cat") == "hang"), key=lambda e: e["pid"])


def test_a_hang_without_end_begins_and_does_not_end(tmp_path: Path) -> None:
    """So Perfetto draws it to the trace's end, whatever else is there."""
    events = events_of(tmp_path, SyntheticHang(step=12, killed=(2,)))
    assert [(e["ph"], e["pid"], e["name"]) for e in events] == [
        ("B", 0, "hang: waits"),
        ("B", 1, "hang: waits"),
        ("B", 2, "hang: is waited for"),
        ("B", 3, "hang: waits"),
    ]
    assert events[0]["args"]["message"].startswith("bucket 5 of step 12 has waited 31 s")
    assert events[0]["args"]["outcome"] == "no end of it is recorded"


def test_a_hang_in_the_first_step_is_all_of_the_trace(tmp_path: Path) -> None:
    """It begins there, and a mark gives it a length: nothing else has happened."""
    write_hung_job(HUNG, SyntheticHang(step=1), tmp_path)
    _, events, _ = exported(tmp_path)
    found = [(e["cat"], e["ts"]) for e in events if e["ph"] != "M"]
    assert found == [("hang", 0.0), ("mark", 1e6)] * 4


def test_hangs_that_overlap_have_rows_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perfetto drops what overlaps without nesting; a sharded model's unit is named."""
    record = replace(SyntheticHang(step=1).record(HUNG, 0), unit="head all-gather (forward)")
    of = partial(Hang, record=record, last_word="", failed=False, went_on=True, ranks=(0,))
    hung = [of(start=a, end=b) for a, b in ((0, 10), (5, None), (10, 20), (15, 30))]
    monkeypatch.setattr("hooktrace.analysis.perfetto.rank_events.hangs", lambda _: hung)
    scene = tab_of(job_run(SyntheticJob(ranks=3, steps=1), tmp_path))
    events: list[Event] = []
    RankEvents([scene], [arrows_of(scene)], 2, 0, events.append).write()
    found = [e for e in events if e.get("cat") == "hang"]
    first = found[0]["tid"]
    assert [(ns(e["ts"]), e["tid"] - first) for e in found] == [
        (0, 0),
        (5, 10**6),
        (10, 0),
        (15, 2 * 10**6),
    ]
    assert {e["args"]["unit"] for e in found} == {record.unit}


BARRIER = {"name": "barrier", "wire_bytes": 0, "where": "train.py:9"}


def test_collectives_of_no_bucket_have_rows_of_their_own(tmp_path: Path) -> None:
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
    assert {"other collectives", "other collectives (overlap 1)"} <= {*names}


def test_a_trace_may_begin_with_a_collective_of_no_bucket(tmp_path: Path) -> None:
    """As a file does whose first part is gone: no time is before the first one."""
    run_with(tmp_path, collective(-2_000_000, 400))
    _, events, _ = exported(tmp_path)
    assert {e["cat"] for e in events if e.get("ts") == 0} == {"other collective"}
