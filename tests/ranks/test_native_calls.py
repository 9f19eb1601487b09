"""A process that ends waits for calls that are in native code, and no longer than it may."""

from __future__ import annotations

import threading
from weakref import WeakSet

import pytest

from hooktrace.ranks import native_calls


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' calls may still be waiting."""
    monkeypatch.setattr(native_calls, "_threads", WeakSet())


def test_waits_for_what_comes_back() -> None:
    """And says so; it is a daemon, which would keep no process alive."""
    go, came_back = threading.Event(), threading.Event()

    def slow() -> None:
        go.wait(30)
        came_back.set()

    thread = native_calls.call_aside(slow, "slow")
    assert thread.daemon
    assert not native_calls.wait(0.0)
    threading.Timer(0.05, go.set).start()
    assert native_calls.wait(30)
    assert came_back.is_set()


def test_all_calls_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many do not come back."""
    go = threading.Event()
    for _ in range(20):
        native_calls.call_aside(lambda: go.wait(30), "stuck")
    now_s, waited_s = [100.0], []

    class Time:
        monotonic = staticmethod(lambda: now_s[0])

    def join(_: threading.Thread, timeout: float) -> None:
        waited_s.append(timeout)
        now_s[0] += timeout

    with monkeypatch.context() as patch:
        patch.setattr(native_calls, "time", Time)
        patch.setattr(threading.Thread, "join", join)
        assert not native_calls.wait(0.25)
    assert (len(waited_s), sum(waited_s)) == (20, 0.25)
    go.set()
    assert native_calls.wait(30)
