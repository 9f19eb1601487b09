"""How a summary writes its numbers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hooktrace.records import Transfer, Unit
from hooktrace.records.summary import summarize
from tests.exporters import records_sample as sample
from tests.exporters.records_sample import looked_at, make_step, plain


def test_bytes_are_of_the_last_step_that_knows_them() -> None:
    """Of a plain hook few do."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=700),)
    (summary,) = summarize([plain(make_step(1), sent=sent), plain(make_step(2), sent=None)])
    assert summary.wire_bytes == 700
    assert [b.wire_bytes for b in summary.buckets] == [700, None]
    assert str(summary).splitlines()[2].startswith("  bucket 1: 0.0040 MB, ? on the wire")


def test_times_of_checked_steps_do_not_count_but_their_errors_do() -> None:
    """A probe is no part of training; what it finds is."""
    (summary,) = summarize([make_step(1), looked_at(make_step(2)), looked_at(make_step(3))])
    assert (summary.steps, summary.exposed_p50_ns, summary.exposed_p95_ns) == (1, *[2_000_000] * 2)
    first = summary.buckets[0]
    assert (first.count, first.duration_p95_ns) == (1, 2_000_000)
    assert (first.error_p50, first.error_count) == (0.25, 2)
    assert summarize([looked_at(make_step(1))]) == [], "as in debug mode"


def test_events_that_did_not_resolve_are_no_times_of_zero() -> None:
    """Two of three calls do not tell, and then none of them."""
    steps = [
        sample.on_device(make_step(number), resolved=resolved)
        for number, resolved in enumerate((False, True, False))
    ]
    (summary,), (unknown,) = summarize(steps), summarize([steps[0], steps[2]])
    first = summary.buckets[0]
    assert (first.count, first.duration_p50_ns) == (3, 4_000_000)
    assert first.stage_p50_ns["wire"] == 2_000_000
    assert (unknown.buckets[0].duration_p50_ns, unknown.buckets[0].stage_p50_ns) == (None, {})
    assert "unknown" in str(unknown).splitlines()[1]


def of_units(exposed_ns: int, number: int = 0, rebuild: int = 1) -> Any:
    """Return a step of a sharded model whose first unit exposes so much, and its second nothing."""
    step, buckets = make_step(number)
    unit = Unit(name="layers.1", collective="all_gather", phase="forward")
    first, second = (replace(b, unit=unit) for b in buckets)
    step = replace(step, sharded=True, rebuild=rebuild)
    return step, (replace(first, exposed_ns=exposed_ns), second)


def test_what_training_waits_for_a_unit_is_said() -> None:
    """Of a bucket nobody waits alone, and of a unit on a device it is not known."""
    (summary,) = summarize(of_units(ns, n) for n, ns in enumerate((10**6, 3 * 10**6, 1_500_000)))
    assert [b.exposed_p50_ns for b in summary.buckets] == [1_500_000, None]
    first_line, second_line = str(summary).splitlines()[1:]
    assert first_line.startswith("  unit layers.1 all-gather (forward): ")
    assert "; 1.50 ms exposed" in first_line
    assert "exposed" not in second_line
    ((alone, *_),) = (str(one).splitlines() for one in summarize([of_units(10**6)]))
    assert alone == "net: fp16_compress_hook, medians of 1 steps, 2.00 ms exposed"


def test_a_sharded_step_with_one_more_collective_leaves_out_no_other() -> None:
    """It begins a rebuild; what only it has is said to be of one step."""
    steps = [of_units(0, number, rebuild=1 + (number > 3)) for number in range(6)]
    (summary,) = summarize(
        (step, units if number == 4 else units[:1]) for number, (step, units) in enumerate(steps)
    )
    assert summary.steps == 6
    first_line, second_line = str(summary).splitlines()[1:]
    assert not first_line.endswith("of the steps")
    assert second_line.endswith("; in 1 of the steps")
