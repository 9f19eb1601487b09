"""What happens to open tracers at the end of a process."""

from __future__ import annotations

import pytest

from hooktrace import Tracer
from hooktrace.ranks import native_calls
from hooktrace.tracing import open_tracers as module
from hooktrace.tracing.open_tracers import open_tracers


class Stuck:
    """A tracer that cannot be closed."""

    def close(self) -> bool:
        raise OSError("the disk is gone")

    def begin_in_child(self) -> None:
        raise AssertionError


def test_the_end_of_a_process_closes_all_and_waits_for_native_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one of them cannot be closed, which is logged; in that order."""
    ended: list[int] = []
    tracers = [Tracer(), Tracer()]
    monkeypatch.setattr(native_calls, "wait", lambda: ended.append(len(open_tracers)))
    stuck = Stuck()
    open_tracers.add(stuck)
    try:
        module._close_all()
    finally:
        open_tracers.discard(stuck)
    assert ended == [1]
    assert not open_tracers & set(tracers)
    assert "the disk is gone" in caplog.text
    assert "call its close() before" in caplog.text
