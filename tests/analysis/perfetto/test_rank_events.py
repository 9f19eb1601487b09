"""The events of one rank: slices that nest, names as they are, marks and counters."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.testing.rank_file import rank_file
from tests.analysis.perfetto.test_export import exported
from tests.analysis.perfetto.trace_events import ns
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.run.files import moved, run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import (
    STEP_NS,
    make_layout,
    make_skew,
    make_step,
    on_device,
    probed,
)


def test_steps_that_overlap_and_device_times_stay_valid(tmp_path: Path) -> None:
    """Buckets go to a second row where they overlap; a device step ends with its buckets."""
    one, other = make_step(1), moved(make_step(2), lambda t: t - 9_500_000)
    steps = [on_device(make_step(0)), one, other, on_device(make_step(5), resolved=False)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), steps)})
    _, events, _ = exported(tmp_path)
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    assert "net: bucket 0 (overlap 1)" in rows
    untimed = [e for e in events if "times" in e.get("args", {})]
    assert len(untimed) == 4
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


def test_marks_and_counters(tmp_path: Path) -> None:
    """The layout, a skew and the last bucket stand on the row of the steps, an error on its own."""
    steps = [probed(make_step(0)), make_step(1)]
    data = rank_file([run_of(0), make_layout(), make_skew(1)], steps)
    write_ranks(tmp_path, {0: data.decode()})
    _, events, _ = exported(tmp_path)
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [(rows[e["tid"]], e["name"], ns(e["ts"])) for e in events if e["ph"] == "i"] == [
        ("net: steps", "last bucket ready", 1_000_000),
        ("net: steps", "last bucket ready", STEP_NS + 1_000_000),
        ("net: bucket 0", "error 0.25", 2_000_000),
        ("net: steps", "bucket layout, generation 1", 0),
        ("net: steps", "bucket 0: ready 3.000 ms after the first rank", STEP_NS),
    ]
    counters = [(e["name"], e["args"]) for e in events if e["ph"] == "C"]
    assert counters == [("net exposed", {"ms": 2.0}), ("net busbw with waits", {"GB/s": 0.002})] * 2
    derived = {e["name"] for e in events if e.get("cat") == "derived"}
    assert derived == {"queue", "wire"}


def test_units_have_a_row_for_each_kind(tmp_path: Path) -> None:
    """Slices are named by unit, know what they carry and expose, and lie on one row of their kind.

    Nothing is at the end of a step, where DDP's exposed time is; and nothing speaks of buckets.
    """
    write_sharded(ShardedJob(ranks=2, steps=3), tmp_path)
    _, events, _ = exported(tmp_path)
    named = [e for e in events if e["name"] == "thread_name" and e["pid"] == 0]
    rows = {e["tid"]: e["args"]["name"] for e in named}
    assert set(rows.values()) == {
        "net: steps", "net: all-gather (forward)", "net: all-gather (backward)",
        "net: reduce-scatter",
    }  # fmt: skip
    first = [
        e for e in events if e.get("cat") == "unit" and e["pid"] == 0 and e["args"]["step"] == 0
    ]
    at = {(rows[e["tid"]], e["name"]): e for e in first}
    assert len(at) == len(first) == 14
    gather = at["net: all-gather (forward)", "blocks.2"]
    assert gather["args"] == {
        "step": 0, "parameter_bytes": 6_000_000, "wire_bytes": 6_000_000,
        "exposed_ns": round(gather["dur"] * 1000),
    }  # fmt: skip
    assert "gradient_bytes" in at["net: reduce-scatter", "<root>"]["args"]
    assert not [e for e in events if e.get("cat") == "exposed"]
    assert "bucket" not in str(events)


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
