"""Fixtures for all tests: nothing may outlive its test."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from hooktrace.tracing.process import open_tracers


def pytest_configure() -> None:
    """Let a terminated run clean up as after Ctrl-C: ranks live in sessions of their own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_tracer_left_open() -> Iterator[None]:
    """Fail a test that leaves a tracer open or a drain running."""
    before = set(open_tracers)
    yield
    left = set(open_tracers) - before
    for leak in left:
        leak.close(1)
    assert not left, "the test left a tracer open"
    drains = [t for t in threading.enumerate() if t.name == "hooktrace-drain"]
    assert not drains, "the test left a drain running"
