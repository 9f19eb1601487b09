"""Files as they are found: damaged, of another schema, in parts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hooktrace.records.content import RankRecords, SkippedLine
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

from .text import decode, encode


def test_what_cannot_be_read_is_named() -> None:
    """Cut, foreign, corrupt and incomplete lines are named by number and reason, others read."""
    step, buckets = sample.make_step()
    lines = encode(sample.make_run(), [(step, buckets)]).splitlines()
    where = 1
    lines[where:where] = [
        *(b"17", b"[" * 100_000, b'{"kind":"step","model":"m"}', b"\x00\x00\x00"),
        b'{"kind":"metric","name":"main","ts":1}',
    ]

    trace = decode(b"\n".join(lines) + b'\n{"kind":"buck')

    assert (trace.steps, trace.buckets) == ([step], list(buckets))
    reasons = {skipped.line - where: skipped.reason for skipped in trace.skipped}
    assert list(reasons) == [1, 2, 3, 4, 5, len(lines) + 1 - where]
    assert reasons[1] == "Expected `object`, got `int`"
    assert reasons[2] == "Expected `object`, got `array`"
    assert "missing required field" in reasons[3]
    assert reasons[4].startswith("not JSON")
    assert reasons[5] == "Invalid value 'metric' - at `$.kind`"
    assert trace.skipped[-1].reason == "the line is cut off: the file ends in the middle of it"


def test_another_schema_or_run_is_not_read_as_this_one() -> None:
    """An unknown schema version and a second run in the file are named and end the reading."""
    run = sample.make_run()
    first = encode(run, [sample.make_step(0)])

    other_fields = b'{"kind":"run","schema":99,"who":"somebody"}\n'
    for data in (first.replace(b'"schema":7', b'"schema":99'), other_fields + first):
        newer = decode(data)
        assert newer == RankRecords(skipped=[SkippedLine(1, newer.skipped[0].reason)])
        assert "schema version 99" in newer.skipped[0].reason
        assert "use the version of hooktrace that wrote it" in newer.skipped[0].reason

    both = decode(first + encode(sample.make_run(1), [sample.make_step(1)]))
    assert both.run == run
    assert [step.step for step in both.steps] == [0]
    assert "a second run begins here" in both.skipped[0].reason


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        Path.mkdir,
        lambda path: path.symlink_to("/nowhere"),
    ],
    ids=["pipe", "device", "folder", "nothing"],
)
def test_only_regular_files_are_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe waits for who writes, a device may never end; the other parts of the rank are read."""
    first, second = tmp_path / "rank00000.jsonl", tmp_path / "rank00000.part1.jsonl"
    first.write_bytes(encode(sample.make_run(), [sample.make_step(0)]))
    make(second)
    found = read_parts([first, second])
    assert [step.step for step in found.steps] == [0]
    ((line, reason),) = found.skipped
    assert (line, found.closed) == (0, False)
    assert reason.startswith("rank00000.part1.jsonl: ")
    assert reason.endswith("put a file there that you may read")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"rank":0', b'"rank":100000000000000000000'),
        (b'"world_size":2', b'"world_size":1099511627776'),
        (b'"wall_anchor_ns":1700000000000000000', b'"wall_anchor_ns":-1'),
        (b'"gradient_bytes":4000', b'"gradient_bytes":-4'),
        (b'"shape":[100]', b'"shape":[-1]'),
        (b'"shape":[100]', b'"shape":[4503599627370496,4]'),
        (b'"wire_bytes":[2000,2000]', b'"wire_bytes":[-5,0]'),
        (b'"wire_bytes":4000', b'"wire_bytes":9223372036854775807'),
        (b'"bus_bytes":4000.0', b'"bus_bytes":-1e300'),
        (b'"step":1', b'"step":4611686018427387904'),
    ],
)
def test_numbers_out_of_range_are_lines_that_cannot_be_read(old: bytes, new: bytes) -> None:
    """They would overflow sums and keys, or be counted one by one."""
    data = encode(sample.make_run(), [sample.make_step(1)], sample.make_layout())
    assert decode(data).skipped == []
    (skipped,) = decode(data.replace(old, new, 1)).skipped
    assert skipped.line == data[: data.index(old)].count(b"\n") + 1
    assert skipped.reason.startswith(("Expected `", "not JSON: ", "a parameter has more elements"))


def test_parts_are_put_together(tmp_path: Path) -> None:
    """Layouts and clocks that a part repeats are there once; skipped lines say their part."""
    first, second = tmp_path / "a", tmp_path / "b"
    before = (sample.make_layout(), sample.make_clock())
    first.write_bytes(encode(sample.make_run(), [sample.make_step(0)], *before) + b"x\n")
    second.write_bytes(encode(sample.make_run(), [sample.make_step(1)], *before))
    whole = read_parts([first, second])
    assert [step.step for step in whole.steps] == [0, 1]
    assert (whole.assignments, whole.clocks) == ([before[0]], [before[1]])
    assert [reason.partition(":")[0] for _, reason in whole.skipped] == ["a"]
