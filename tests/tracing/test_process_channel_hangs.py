"""What a tracer does about a hang, by its settings."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace import Tracer
from hooktrace.tracing.options import OnHang
from tests.exporters.records_sample import make_hang
from tests.ranks.channel.jobs import wait_for

HANG = replace(make_hang(7), hang=3, stacks=())


@pytest.mark.parametrize(
    ("on_hang", "speaks", "said"),
    [("record", True, 0), ("warn", True, 1), ("warn", False, 0)],
)
def test_record_and_log(
    on_hang: OnHang, speaks: bool, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is recorded in any case, and logged by default, by one rank of a host."""
    with Tracer(on_hang=on_hang) as tracer:
        tracer.start()
        tracer.hang_watch.hear_of_hang(HANG, speaks=speaks)
        assert tracer.hangs() == [HANG]
        names = lambda: {thread.name for thread in threading.enumerate()}  # noqa: E731
        assert wait_for(lambda: len(caplog.messages) == said)
        assert wait_for(lambda: "hooktrace-hang-warn" not in names())
    assert len(caplog.messages) == said
    for line in caplog.messages:
        assert re.fullmatch(
            r"\[rank 0, \d\d:\d\d:\d\d UTC\] hang: bucket 0 of step 7 .*; see docs/hangs.md#\w+",
            line,
        )


def test_dump_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing writes records: it goes to where the process is, and the log says so."""
    monkeypatch.chdir(tmp_path)
    with Tracer(on_hang="dump") as tracer:
        tracer.hang_watch.hear_of_hang(HANG, speaks=False)
        path = tmp_path / "hang003-rank00000.txt"
        assert wait_for(lambda: str(path) in caplog.text)
    text = path.read_text()
    assert text.startswith(f"{HANG.message}\n")
    assert "torch's Flight Recorder" in text
    assert "test_dump_without_records" in text
