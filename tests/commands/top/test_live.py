"""The loop: asks, draws, does what keys say, and says when the hub does not answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from io import StringIO
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from hooktrace.commands.top import live
from hooktrace.commands.top.keys import Keys
from hooktrace.commands.top.live import Top, watch
from hooktrace.commands.top.picture import Picture
from hooktrace.ranks.control.messages import Command
from hooktrace.records.errors import UsageError

from .snapshots import job


class FakeHub:
    def __init__(self) -> None:
        self.asked: list[object] = []
        self.error: UsageError | None = None

    def look(self, model: str) -> bytes:
        self.asked.append(model)
        if self.error is not None:
            raise self.error
        return msgspec.msgpack.encode(job())

    def command(self, command: Command) -> list[str]:
        self.asked.append(command)
        if self.error is not None:
            raise self.error
        return ["rank 3, thread MainThread", "  train.py:8 step"]


class Typed(Keys):
    def __init__(self, keys: Iterable[str | None]) -> None:
        super().__init__(None)
        self._keys: Iterator[str | None] = iter(keys)

    def wait(self, timeout_s: float) -> str | None:
        return next(self._keys)


def run(hub: FakeHub, *keys: str | None) -> Top:
    """Return what is shown after some keys; ``None`` is a second without one."""
    drawn: list[Picture] = []
    top = Top(hub, "runs/a", job(), drawn.append)
    typed = Typed(keys)
    for _ in keys:
        top.turn(typed)
    assert len(drawn) >= len(keys)
    return top


def test_a_second_without_a_key_asks_again() -> None:
    """And the key q ends it."""
    hub = FakeHub()
    assert run(hub, None, None).goes_on
    assert hub.asked == ["", ""]
    assert not run(hub, "q").goes_on


def test_stacks_are_a_page_that_q_leaves() -> None:
    """Not the program."""
    hub = FakeHub()
    top = run(hub, "enter")
    assert hub.asked == [Command(verb="stacks", rank=3)]
    assert top.view.page == ("rank 3, thread MainThread", "  train.py:8 step")
    top = run(hub, "enter", "q")
    assert top.goes_on
    assert top.view.page is None


def test_what_came_of_a_command_is_said() -> None:
    hub = FakeHub()
    assert run(hub, "d").view.said == "detail 20: rank 3, thread MainThread;   train.py:8 step"
    hub.error = UsageError("the hub is gone")
    assert run(hub, "d").view.said == "detail 20: the hub is gone"


def test_a_job_that_does_not_answer_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its age, until it answers again."""
    readings = itertools.count(100)
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    hub = FakeHub()
    hub.error = UsageError("no answer within 2 s")
    top = run(hub, None)
    assert top.view.trouble == ("this is 3 s old, the job does not answer: no answer within 2 s")
    hub.error = None
    assert run(hub, None).view.trouble == ""


def test_without_a_terminal_it_is_one_picture() -> None:
    """With all ranks."""
    output = StringIO()
    watch(FakeHub(), "runs/a", Console(file=output, width=80))
    assert sum("node0" in line for line in output.getvalue().splitlines()) == 4
    assert output.getvalue().endswith("\n")
    assert "q quit" not in output.getvalue()
    assert "\n\n" not in output.getvalue()
