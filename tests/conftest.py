"""What holds for all tests: nothing outlives its test, and what shares something stays together.

make test --> pytest -n 2 --dist loadgroup --> two processes, each takes a group after another
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leaks
from tests.distributed.harness import launchers

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    """Let a terminated run clean up as after Ctrl-C: ranks live in sessions of their own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


RANKS = {"two", "four", "world"}
"""The fixtures of tests/distributed/conftest.py: groups of ranks, one of each in the whole run."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests together that share launched ranks, a browser, or a module's fixtures."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if RANKS & set(getattr(item, "fixturenames", ())):
            group = "ranks"
        else:
            group = folder if folder == "browser" else str(item.path.relative_to(TESTS))
        item.add_marker(pytest.mark.xdist_group(group))


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
