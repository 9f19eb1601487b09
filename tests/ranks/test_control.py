"""Commands: from which step on they hold, who is asked, and the file that says where the hub is."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import HubAddress, Member, encode
from hooktrace.ranks.channel.node import Answers
from hooktrace.ranks.control import (
    QUESTION,
    Command,
    CommandResult,
    Done,
    Verb,
    address_path,
    ask,
    carry_out,
    first_steps,
    read_address,
    remove_address,
    send_command,
    write_address,
)
from hooktrace.records.errors import UsageError
from tests.ranks.channel.jobs import Job, wait_for


def outcome(**steps: tuple[int, ...]) -> CommandResult:
    """Return what ranks say of the steps of models, rank by rank."""
    by_rank = enumerate(zip(*steps.values(), strict=True))
    ranks = {rank: Done(steps=dict(zip(steps, at, strict=True))) for rank, at in by_rank}
    return CommandResult(ranks=ranks)


def test_it_is_ahead_of_the_foremost_rank_by_what_it_makes_meanwhile() -> None:
    """Twice as many steps as it made while it was asked, and some; of a new model just some."""
    before, after = outcome(a=(100, 104), b=(3, 2)), outcome(a=(110, 124), b=(3, 3), c=(5, 0))
    assert first_steps(before, after) == {"a": 124 + 2 * 20 + 8, "b": 3 + 8, "c": 5 + 8}


@pytest.mark.parametrize("verb", [verb for verb in get_args(Verb) if verb != "flush"])
def test_ranks_that_do_not_answer_hold_a_command_up_for_less_than_two_seconds(verb: Verb) -> None:
    """Also where they are asked for their steps before."""
    waited: list[float] = []

    class Asked:
        """A node whose ranks never answer."""

        async def gather(self, name: str, argument: bytes, timeout_s: float) -> Answers[bytes]:
            waited.append(timeout_s)
            return Answers()

    asyncio.run(carry_out(Asked(), encode(Command(verb=verb, number=1))))
    assert sum(waited) < 2


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Three ranks that say which one they are, however long that takes on a busy machine."""
    monkeypatch.setattr("hooktrace.ranks.control._TIMEOUT_S", 20.0)
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


ADDRESS = HubAddress(
    places=(("10.0.0.1", 4000),), token="ab" * 16, member=Member(0, os.getpid(), "a", "a")
)


def test_it_is_its_owners_whatever_was_there_and_is_removed_by_who_wrote_it(tmp_path: Path) -> None:
    """Also where a file of another mode, or an earlier job's, has its name."""
    path = address_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o666)
    write_address(tmp_path, replace(ADDRESS, member=replace(ADDRESS.member, pid=1)))
    remove_address(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    write_address(tmp_path, ADDRESS)
    assert read_address(tmp_path) == ADDRESS
    assert [file.name for file in path.parent.iterdir()] == ["channel.json"]
    remove_address(tmp_path)
    remove_address(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize(("content", "said"), [(None, "is not there"), ("{", "cannot be read")])
def test_what_cannot_be_read_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        address_path(tmp_path).parent.mkdir(parents=True)
        address_path(tmp_path).write_text(content)
    with pytest.raises(UsageError, match=f"channel.json {said}.*--connect"):
        read_address(tmp_path)
