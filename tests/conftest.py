"""What holds for all tests: nothing outlives its test, and a file's tests stay together.

make test --> pytest -n 2 --dist loadfile --> two processes, each takes a file after another
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests import leaks
from tests.distributed.harness import launchers


def pytest_configure() -> None:
    """Let a terminated run clean up as after Ctrl-C: ranks live in sessions of their own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a tracer open, a drain running, or a process.

    Groups of ranks are shared by many tests and end with the session.
    """
    tracers, children = leaks.open_tracers(), leaks.children()
    yield
    left = leaks.open_tracers() - tracers
    for leak in left:
        leak.close(1)
    assert not left, "the test left a tracer open"
    assert not leaks.drains(), "the test left a drain running"
    processes = leaks.children() - children - launchers
    assert not processes, [leaks.command(pid) for pid in processes]
