"""Commands to ranks and what is shown of them; a hub that went away is looked for again."""

from __future__ import annotations

import pytest

from hooktrace.commands.top.job_client import JobClient
from hooktrace.ranks.channel.messages import Member, Silent
from hooktrace.ranks.control.messages import Command, CommandResult, Done
from hooktrace.records.errors import UsageError

SILENT = Silent(Member(2, 7, "b", ""), "stopped", "by a signal")


class FakeClient:
    """Answers by what it is told; ``made``: how many there were."""

    made = 0
    gone = False
    outcome = CommandResult(ranks={})
    asked: object = None

    def __init__(self) -> None:
        type(self).made += 1

    def ask(self, name: str, argument: bytes, timeout_s: float) -> bytes:
        if self.gone:
            raise UsageError("the hub did not answer")
        return name.encode() + b" " + argument

    def command(self, command: Command, timeout_s: float) -> CommandResult:
        type(self).asked = command
        return self.outcome

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    return type("Client", (FakeClient,), {})


def test_one_connection_is_used_until_it_fails(client: type[FakeClient]) -> None:
    """Then the next question makes another one."""
    hub = JobClient(client)
    assert [hub.look("net"), hub.look("")] == [b"job net", b"job "]
    client.gone = True
    with pytest.raises(UsageError, match="did not answer"):
        hub.look("")
    client.gone = False
    assert (hub.look(""), client.made) == (b"job ", 2)


def test_stacks_are_of_the_rank_that_was_asked_for(client: type[FakeClient]) -> None:
    """With the thread that trains first; or how its process is."""
    client.outcome = CommandResult(
        ranks={
            0: Done(),
            1: Done(text="thread 'drain'\n  d.py:1\n\nthread 'MainThread'\n  train.py:8"),
        },
        silent=[SILENT],
    )
    hub = JobClient(client)
    assert hub.command(Command(verb="stacks", rank=1)) == [
        *("rank 1", "thread 'MainThread'", "  train.py:8"),
        *("", "thread 'drain'", "  d.py:1"),
    ]
    assert client.asked == Command(verb="stacks", rank=1)
    assert hub.command(Command(verb="stacks", rank=2)) == [
        "rank 2 did not answer: stopped by a signal"
    ]


def test_detail_says_how_all_ranks_took_it(client: type[FakeClient]) -> None:
    """Those that could not, and those that said nothing, by number."""
    done = {rank: Done(text="net from step 9 on, 20 steps") for rank in (0, 1)}
    client.outcome = CommandResult(
        ranks={**done, 3: Done(trouble="writes no records")}, silent=[SILENT]
    )
    assert JobClient(client).command(Command(verb="detail", number=20)) == [
        "2 ranks: net from step 9 on, 20 steps",
        "1 ranks: writes no records",
        "1 ranks did not answer",
    ]
    assert client.asked == Command(verb="detail", number=20)
