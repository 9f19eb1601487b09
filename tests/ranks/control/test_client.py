"""A client and the hub, over real connections: what it is told, and what it is refused."""

from __future__ import annotations

import errno
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.handshake import NONCE_BYTES, PROOF_BYTES
from hooktrace.ranks.channel.messages import HubAddress
from hooktrace.ranks.control.client import Client
from hooktrace.ranks.control.hub import carry_out
from hooktrace.ranks.control.messages import QUESTION, Command, Done, encode
from hooktrace.records.errors import UsageError
from tests.ranks.channel.jobs import Job, wait_for


def address_of(job: Job, rank: int = 0) -> HubAddress:
    found = job.ranks[rank].hub
    assert found is not None
    return found


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Three ranks that say which one they are, however long that takes on a busy machine."""
    monkeypatch.setattr("hooktrace.ranks.control.hub._TIMEOUT_S", 20.0)
    with Job(3) as made:
        for rank, channel in enumerate(made.ranks):
            channel.handlers[QUESTION] = lambda _, rank=rank: encode(Done(text=f"I am {rank}"))
        hub = made.ranks[0]
        hub.control_handlers[QUESTION] = partial(carry_out, hub)
        yield made


def test_each_rank_is_asked_and_one_that_is_gone_is_named(job: Job) -> None:
    """One question after another over one connection."""
    with Client(address_of(job)) as client:
        first = client.command(Command(verb="status"))
        job.ranks[2].close()
        assert wait_for(lambda: 2 not in job.ranks[0].roster)
        second = client.command(Command(verb="status"))
    assert {rank: done.text for rank, done in first.ranks.items()} == {
        rank: f"I am {rank}" for rank in range(3)
    }
    assert sorted(second.ranks) == [0, 1]
    assert [(one.rank, one.state) for one in second.silent] == [(2, "ended")]


def test_an_answer_that_no_message_holds_is_an_answer(job: Job) -> None:
    """Not a client that waits in vain."""

    async def too_long(_: bytes) -> bytes:
        return bytes(9 << 20)

    job.ranks[0].control_handlers["novel"] = too_long
    with Client(address_of(job)) as client:
        with pytest.raises(UsageError, match="an answer of 9437184 bytes is too long, 4194304 fit"):
            client.ask("novel", b"")
        assert len(client.command(Command(verb="status")).ranks) == 3


def test_what_cannot_be_done_is_said(job: Job) -> None:
    """A command that is none; the connection goes on."""
    with Client(address_of(job)) as client:
        with pytest.raises(UsageError, match="Invalid enum value"):
            client.ask(QUESTION, b"\x81\xa4verb\xa4boom")
        assert len(client.command(Command(verb="status")).ranks) == 3


def test_a_question_that_nobody_answers_ends_the_connection(job: Job) -> None:
    """It is of another version."""
    with (
        Client(address_of(job)) as client,
        pytest.raises(UsageError, match="another version of hooktrace"),
    ):
        client.ask("weather", b"")


def test_a_wrong_token_gets_no_answer(job: Job) -> None:
    """Nor does a port where nobody listens."""
    address = address_of(job)
    with pytest.raises(UsageError, match="wrong token"):
        Client(replace(address, token="00" * 16))
    with pytest.raises(UsageError, match=r"nobody answers at 127\.0\.0\.1 port 1 "):
        Client(replace(address, places=(("127.0.0.1", 1),)))


@pytest.mark.parametrize("reads", [True, False], ids=["once read", "unread"])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_an_end_is_no_hang_however_it_comes(reset: bool, reads: bool) -> None:
    """A hub that ends a connection before it has read all of it resets it.

    Where it has read nothing yet, the client may still be connecting.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            theirs, _ = server.accept()
            if reset:
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if reads:
                theirs.sendall(bytes(NONCE_BYTES))
                theirs.recv(NONCE_BYTES + PROOF_BYTES, socket.MSG_WAITALL)
            theirs.close()

        thread = threading.Thread(target=end)
        thread.start()
        address = HubAddress(places=(server.getsockname(),), token="00" * 16)
        with pytest.raises(UsageError, match="ended the connection: a wrong token, or the job"):
            Client(address)
        thread.join(10)


def test_a_reset_while_it_connects_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting waits with poll: a reset right behind the handshake is told there."""

    def connect(*_: object, **__: object) -> socket.socket:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(socket, "create_connection", connect)
    address = HubAddress(places=(("127.0.0.1", 1),), token="00" * 16)
    with pytest.raises(UsageError, match="ended the connection: a wrong token, or the job"):
        Client(address)
