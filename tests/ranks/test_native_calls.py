"""A process that ends waits for calls that are in native code, and no longer than it may."""

from __future__ import annotations

import threading
import time

import pytest

from hooktrace.ranks import native_calls


def test_calls_that_come_back_are_waited_for_and_all_share_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many do not come back; daemons, which would keep no process alive."""
    own = type("Own", (native_calls._Call,), {})  # other tests' may still wait
    monkeypatch.setattr(native_calls, "_Call", own)
    go = threading.Event()
    threads = [native_calls.call_aside(lambda: go.wait(60), "stuck") for _ in range(50)]
    assert all(thread.daemon for thread in threads)
    began = time.monotonic()
    assert not native_calls.wait(0.2)
    assert time.monotonic() - began < 0.2 * 50
    threading.Timer(0.05, go.set).start()
    assert native_calls.wait(60)
