"""A client and the hub, over real connections: what it is told, and what it is refused."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import HubAddress, encode
from hooktrace.ranks.control.client import ask, send_command
from hooktrace.ranks.control.commands import QUESTION, Command, CommandResult, Done, carry_out
from hooktrace.records.errors import UsageError
from tests.ranks.channel.jobs import Job, wait_for


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Three ranks that say which one they are, however long that takes on a busy machine."""
    monkeypatch.setattr("hooktrace.ranks.control.commands._TIMEOUT_S", 20.0)
    with Job(3) as made:
        for rank, channel in enumerate(made.ranks):
            channel.handlers[QUESTION] = lambda _, rank=rank: encode(Done(text=f"I am {rank}"))
        hub = made.ranks[0]
        hub.control_handlers[QUESTION] = partial(carry_out, hub)
        yield made


def test_one_question_after_another(job: Job) -> None:
    """Each rank is asked, one that is gone is named, and what cannot be done is said."""

    async def too_long(_: bytes) -> bytes:
        return bytes(9 << 20)

    job.ranks[0].control_handlers["novel"] = too_long
    address = job.ranks[0].hub
    assert address is not None

    async def in_a_loop() -> CommandResult:
        return send_command(address, Command(verb="status"))

    first = asyncio.run(in_a_loop())  # as in a notebook
    assert [done.text for done in first.ranks.values()] == ["I am 0", "I am 1", "I am 2"]
    with pytest.raises(UsageError, match="an answer of 9437184 bytes is too long, 4194304 fit"):
        ask(address, "novel", b"")
    with pytest.raises(UsageError, match="Invalid enum value"):
        ask(address, QUESTION, b"\x81\xa4verb\xa4boom")
    job.ranks[2].close()
    assert wait_for(lambda: 2 not in job.ranks[0].roster)
    second = send_command(address, Command(verb="status"))
    assert sorted(second.ranks) == [0, 1]
    assert [(one.rank, one.state) for one in second.silent] == [(2, "ended")]
    with pytest.raises(UsageError, match="another version of hooktrace"):
        ask(address, "weather", b"")
    with pytest.raises(UsageError, match="it refused the token, the job ends, or"):
        ask(replace(address, token="00" * 16), QUESTION, b"")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "it refused the token, the job ends, or"),
        (ConnectionRefusedError(), r"nobody answers at 127\.0\.0\.1 port 1 "),
    ],
)
def test_where_it_cannot_connect(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub that ends a connection before it has read all of it resets it, which is an end."""

    async def connect(*_: object) -> Any:
        raise error

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_connection", connect)
    with pytest.raises(UsageError, match=said):
        ask(HubAddress(places=(("127.0.0.1", 1),), token="00" * 16), QUESTION, b"")
