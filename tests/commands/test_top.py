"""``hooktrace top``: the picture of a snapshot and what keys do.

In real jobs, and on a page of torch's debug server: ``distributed/test_whole_job.py``.
"""

from __future__ import annotations

import itertools
import os
import pty
import sys
import termios
from io import StringIO
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from hooktrace.commands.top import live
from hooktrace.commands.top.keys import Keys, keys, keys_of
from hooktrace.commands.top.live import Hub, Top
from hooktrace.commands.top.picture import Picture, View
from hooktrace.ranks.whole_job.job_steps import JobSteps
from hooktrace.ranks.whole_job.snapshot import JobSnapshot
from hooktrace.records.errors import UsageError
from tests.ranks.whole_job.parts import Seconds, message_of


def job(
    ranks: int = 4, steps: int = 20, *, late: int = 3, hangs: tuple[str, ...] = ()
) -> JobSnapshot:
    """Return a job of hosts of eight ranks, one of which comes 7 ms after the others."""
    hub = JobSteps(ranks, Seconds())
    for first in range(0, ranks, 8):
        of_host = range(first, min(first + 8, ranks))
        message = message_of(of_host, range(1, steps + 1), late=late, host=f"node{first // 8}")
        hub.take(first, message)
    return hub.snapshot("", hangs)


def screen(
    shown: JobSnapshot, view: View | None = None, *, width: int = 80, height: int = 24
) -> list[str]:
    output = StringIO()
    console = Console(
        file=output, width=width, height=height, force_terminal=True, color_system=None
    )
    console.print(Picture("runs/a", view or View(), shown), height=height, end="")
    return [line.rstrip() for line in output.getvalue().split("\n")]


HANG = (
    "bucket 5 of step 120 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
    "`data.py:88 next_batch`, 1 step behind"
)


def test_a_small_job_at_80_by_24() -> None:
    """Heading, last step, strips, ranks by lateness with what the clocks may be off by, a hang."""
    lines = screen(job(hangs=(HANG,)))
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    assert lines[:11] == [
        "hooktrace top  runs/a  model net (fp16_compress_hook)",
        "4 of 4 ranks have told",
        "step 20, 4 ranks: period 100 ms (100 to 100); exposed 5.00 ms (5.00 to 5.00);",
        "delay 7.00 ms ± 0.20, last rank 3",
        "delay   ████████████████████  20 steps, up to 7.00 ms",
        "exposed ████████████████████  20 steps, up to 5.00 ms",
        "each rank, means of its last steps:",
        "  rank     step behind delay ms period ms exposed ms  host",
        "     3       20            7.00       100       5.00  node0",
        "     0       20           <0.20       100       5.00  node0",
        "     1       20           <0.20       100       5.00  node0",
    ]
    assert " ".join(lines[-3:-1]) == f"hang: {HANG}"
    assert lines[-1].startswith("q quit  s sort")


def test_what_is_not_known_is_not_said() -> None:
    """Without clocks nobody is last; without steps there is nothing."""
    shown = job()
    steps = tuple(replace(s, arrival=None, exposed=None) for s in shown.steps)
    ranks = tuple(replace(r, arrival_delay_ns=None) for r in shown.ranks)
    lines = screen(replace(shown, steps=steps, ranks=ranks))
    assert "exposed unknown; delay unknown" in lines[2]
    assert "last rank" not in "".join(lines)
    assert lines[3] == f"delay   {'·' * 20}  20 steps"
    assert "no step yet" in screen(JobSteps(2).snapshot())[2]


def test_who_is_behind_silent_or_has_anomalies_is_marked() -> None:
    """Each in the row of the rank."""
    shown = job()
    first, *others = shown.ranks
    line = replace(first.line, anomalies=3, anomaly="nan step 7 bucket 1")
    marked = replace(first, line=line, behind=2, age_s=12.3)
    lines = screen(replace(shown, ranks=(marked, *others)), width=120)
    (row,) = (line for line in lines if line.startswith("     3 "))
    assert row.split()[2] == "2"
    assert row.split("node0")[1] == "  silent for 12 s  3 anomalies, last: nan step 7 bucket 1"


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
        (("s", "s", "s", "s", "s"), [], ("", "delay"), True),
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


def test_letters_are_small_ones_and_other_keys_are_none_of_them() -> None:
    """Several may come at once, as of somebody who types fast; Escape and Ctrl-D leave."""
    assert keys_of(b"S\x1b[B\x1bOBmq") == ["s", "\x1b[b", "\x1bob", "m", "q"]
    assert keys_of(b"\x1b") == keys_of(b"\x04") == ["q"]


def test_a_key_comes_without_enter_and_the_terminal_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without echo meanwhile."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "r+b", buffering=0) as terminal, os.fdopen(leader, "r+b", 0) as hand:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(terminal)
        with keys() as typed:
            assert typed.wait(0.0) == []
            hand.write(b"sm")
            assert typed.wait(10.0) == ["s", "m"]
        assert termios.tcgetattr(terminal) == before


def test_a_terminal_that_is_gone_ends_it() -> None:
    """As a closed pipe does."""
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading, "rb"):
        assert Keys(reading).wait(1.0) == ["q"]
