"""A busy loop serves some connections at a time, none of them never, and lets others run."""

from __future__ import annotations

import os
import selectors
import threading
import time
from typing import Any

import pytest

from hooktrace.ranks.channel import giving_way
from hooktrace.ranks.channel.channel import THREAD_NAME
from hooktrace.ranks.channel.giving_way import GivingWay
from tests.ranks.channel.jobs import wait_for


def test_of_many_connections_some_are_reported_and_each_in_time() -> None:
    """All of them have something to read all the time."""
    pipes = [os.pipe() for _ in range(100)]
    with GivingWay() as selector:
        for reading, writing in pipes:
            os.write(writing, b"x")
            selector.register(reading, selectors.EVENT_READ)
        seen = set()
        for _ in range(1000):
            found = selector.select(0)
            assert len(found) == 16
            seen |= {key.fd for key, _ in found}
            if len(seen) == len(pipes):
                break
        assert len(seen) == len(pipes)
    for pair in pipes:
        for end in pair:
            os.close(end)


def test_it_sleeps_after_some_work_and_not_where_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping is what lets another thread have the interpreter lock at once."""
    now, slept = [100.0], []

    class Time:
        monotonic = staticmethod(lambda: now[0])
        sleep = slept.append

    class Waiting(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[Any]:
            now[0] += waits
            return []

    class GivesWay(GivingWay, Waiting):
        """One that waits as long as one says; those of other threads select as they do."""

    # The channel of a test before this one reads the clock until it has ended.
    assert wait_for(lambda: THREAD_NAME not in [thread.name for thread in threading.enumerate()])
    monkeypatch.setattr(giving_way, "time", Time)
    with GivesWay() as selector:
        waits = 0.01
        selector.select()
        slept.clear()
        now[0] += 0.0005
        waits = 0.0
        selector.select()
        assert slept == []
        now[0] += 0.0006
        selector.select()
        assert len(slept) == 1
        selector.select()
        assert len(slept) == 1
    assert time is not giving_way.time
