"""The loop: asks, draws, does what keys say, and says when the hub does not answer."""

from __future__ import annotations

import itertools
from io import StringIO
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from hooktrace.commands.top import live
from hooktrace.commands.top.live import Hub, Top
from hooktrace.records.errors import UsageError

from .snapshots import job


class FakeClient:
    """A connection to a hub; ``made``: how many there were, ``asked``: for which models."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[str] = []
        self.error: UsageError | None = None
        self.shown = replace(job(), models=("net", "critic"))

    def connect(self) -> Any:
        self.made += 1
        return self

    def ask(self, name: str, argument: bytes, timeout_s: float) -> bytes:
        assert name == "job"
        self.asked.append(argument.decode())
        if self.error is not None:
            raise self.error
        return msgspec.msgpack.encode(self.shown)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


def top_of(client: FakeClient, output: StringIO | None = None) -> Top:
    return Top(Hub(client.connect), "runs/a", Console(file=output or StringIO(), width=80))


def press(top: Top, *keys: str) -> Top:
    """Return what is shown after some keys; an empty one is a second without."""
    for key in keys:
        typed: Any = SimpleNamespace(wait=lambda _, key=key: [*key])
        top.turn(typed)
    return top


@pytest.mark.parametrize(
    ("keys", "asked", "view", "goes_on"),
    [
        (("", ""), ["", ""], ("", "delay"), True),
        (("q",), [], ("", "delay"), False),
        (("x", "s"), [], ("", "period"), True),
        (("s", "s", "s", "s", "s"), [], ("", "delay"), True),
        (("m",), ["critic"], ("critic", "delay"), True),
        (("m", "m", ""), ["critic", "net", "net"], ("net", "delay"), True),
        (("sq",), [], ("", "period"), False),
    ],
)
def test_keys_change_what_is_looked_at(
    client: FakeClient,
    keys: tuple[str, ...],
    asked: list[str],
    view: tuple[str, str],
    goes_on: bool,
) -> None:
    """A second without one, and another model, ask the hub."""
    top = press(top_of(client), *keys)
    assert client.asked == ["", *asked]
    assert (top.view.model, top.view.sort, top.goes_on) == (*view, goes_on)


def test_a_job_that_does_not_answer_is_shown_as_it_was(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its age, until it answers again, over a connection of its own."""
    readings = itertools.count(100)
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    top = top_of(client)
    client.error = UsageError("no answer within 2 s")
    press(top, "")
    assert top.view.trouble == "this is 3 s old, the job does not answer: no answer within 2 s"
    client.error = None
    assert press(top, "").view.trouble == ""
    assert client.made == 2


def test_without_a_terminal_it_is_one_picture(client: FakeClient) -> None:
    """With all ranks."""
    output = StringIO()
    top_of(client, output).run()
    assert sum("node0" in line for line in output.getvalue().splitlines()) == 4
    assert output.getvalue().endswith("\n")
    assert "q quit" not in output.getvalue()
    assert "\n\n" not in output.getvalue()
