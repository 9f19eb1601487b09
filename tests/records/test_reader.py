"""Files as they are found: damaged, of another schema, in parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hooktrace
from hooktrace.records.content import RankRecords, SkippedLine
from tests.exporters import records_sample as sample

from .text import decode, encode


def test_what_cannot_be_read_is_named() -> None:
    """Cut, foreign, corrupt and incomplete lines are named by number and reason, others read."""
    step, buckets = sample.make_step()
    lines = encode(sample.make_run(), [(step, buckets)]).splitlines()
    where = 1
    lines.insert(where, b'{"kind":"metric","name":"main","ts":1}')
    lines.insert(where, b"\x00\x00\x00")
    lines.insert(where, b'{"kind":"step","model":"m"}')
    lines.insert(where, b"[" * 100_000)
    lines.insert(where, b"17")

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
    for data in (first.replace(b'"schema":3', b'"schema":99'), other_fields + first):
        newer = decode(data)
        assert newer == RankRecords(skipped=[SkippedLine(1, newer.skipped[0].reason)])
        assert "schema version 99" in newer.skipped[0].reason
        assert "use the version of hooktrace that wrote it" in newer.skipped[0].reason

    both = decode(first + encode(sample.make_run(1), [sample.make_step(1)]))
    assert both.run == run
    assert [step.step for step in both.steps] == [0]
    assert "a second run begins here" in both.skipped[0].reason


def test_reading_needs_no_torch() -> None:
    """Nor numpy: the codec imports msgspec and the records only."""
    package = Path(hooktrace.__file__).parent
    code = (
        "import sys, types; p = types.ModuleType('hooktrace'); "
        f"p.__path__ = [{str(package)!r}]; sys.modules['hooktrace'] = p; "
        "import hooktrace.records.codec; "
        "print([m for m in ('torch', 'numpy', 'tensorboard') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
