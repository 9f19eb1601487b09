"""What a tracer does about a hang, by its settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hooktrace import Tracer
from hooktrace.records import HangRecord
from hooktrace.tracing.hang_options import OnHang
from hooktrace.tracing.hangs import dump_text

HANG = HangRecord(
    kind="busy",
    hang=3,
    model="model0",
    hook="fp16",
    step=7,
    bucket=0,
    ranks=(1,),
    waiting=(0,),
    since_ns=0,
    since_wall_ns=0,
    message="bucket 0 of step 7 has waited",
    rank=0,
)


@pytest.mark.parametrize(("on_hang", "said"), [("record", 0), ("warn", 1)])
def test_record_and_log(on_hang: OnHang, said: int, caplog: pytest.LogCaptureFixture) -> None:
    """It is recorded in any case, and logged by default."""
    with caplog.at_level(logging.WARNING, "hooktrace"), Tracer(on_hang=on_hang) as tracer:
        tracer.start()
        tracer.hang_watch.hear_of_hang(HANG)
        assert tracer.hangs() == [HANG]
        until(lambda: len(said_of(caplog)) == said)
    assert said_of(caplog) == ["hang: bucket 0 of step 7 has waited"] * said


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if message.startswith("hang: ")]


def test_dump_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing writes records: it goes to where the process is, and the log says so."""
    monkeypatch.chdir(tmp_path)
    with Tracer(on_hang="dump") as tracer:
        tracer.hang_watch.hear_of_hang(HANG)
        path = tmp_path / "hang003-rank00000.txt"
        until(lambda: str(path) in caplog.text)
    assert path.read_text().startswith("bucket 0 of step 7 has waited\n")
    assert "test_dump_without_records" in path.read_text()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_dump_text_has_what_torch_tells() -> None:
    """Or that it tells nothing."""
    assert "torch's Flight Recorder" in dump_text(HANG, [], 0)


def test_what_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 99th percentile of a model's buckets, once there are enough."""
    with Tracer() as tracer:
        monkeypatch.setattr(tracer, "bucket_durations", lambda model: list(range(19)))
        assert tracer.hang_watch.usual_ns("model0") is None
        monkeypatch.setattr(tracer, "bucket_durations", lambda model: list(range(200)))
        assert tracer.hang_watch.usual_ns("model0") == 198


def test_pause() -> None:
    """As long as a ``with`` block."""
    with Tracer() as tracer:
        with tracer.pause_watchdog():
            assert tracer.hang_watch.paused
        assert not tracer.hang_watch.paused
