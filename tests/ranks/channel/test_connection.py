"""Who is let in, and what it may do there: over real connections, beside ranks that go on."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from hooktrace.ranks.channel.connection import Connection
from hooktrace.ranks.channel.messages import (
    MOST_BYTES,
    PROTOCOL,
    Answered,
    Goodbye,
    Hello,
    Member,
    Members,
    Message,
    Notice,
    Ping,
    Pong,
    Report,
)
from tests.ranks.channel.jobs import DEADLINE_S, Job, ask, wait_for
from tests.ranks.channel.strangers import QUESTION, Stranger, framed

HELLO = Hello(PROTOCOL, Member(1, 0, "", ""))
FOREIGN = Members(joined=(Member(2, 0, "", ""),))


@pytest.fixture
def job(capfd: pytest.CaptureFixture[str]) -> Iterator[Job]:
    """Two ranks, which answer before and after a test, and print nothing."""
    with Job(2) as ranks:
        yield ranks
        hub = ranks.ranks[0]
        assert wait_for(lambda: sorted(ask(hub, "who", b"", DEADLINE_S).answers) == [0, 1])
        assert wait_for(lambda: sorted(hub.roster) == [0, 1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("said", [bytes(48), b"GET / HTTP/1.1\r\n" * 3, bytes(1 << 20)], ids=len)
def test_a_stranger_gets_no_word(job: Job, said: bytes) -> None:
    """Its connection is closed, after random bytes that tell nothing; no proof is right twice."""
    hub = job.ranks[0]
    with Stranger(hub) as friend:
        for instead in (said, hub.children.token + said, friend.proof):
            with Stranger(hub, instead) as stranger:
                assert stranger.heard() == b""
        with Stranger(hub, b"") as part:
            part.say(part.proof[:-1])
            assert ask(hub, "who", b"", DEADLINE_S).answers
            assert part.is_open()  # until all of it is there: no byte can be guessed alone
        assert friend.is_open()


GARBAGE = {
    "no msgpack": struct.pack("<I", 5) + b"\xc1\xff\xff\xff\xff",
    "empty": struct.pack("<I", 0),
    "too long": struct.pack("<I", MOST_BYTES + 1),
    "deep": struct.pack("<I", 20_000) + b"\x91" * 20_000,
    "many": struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff",
    "of a parent": framed(Pong(0, 0, 0, None, 0)),
    "rank": framed(Hello(PROTOCOL, Member(1 << 40, 0, "", ""))),
    "name": framed(Report("x" * 100, 0, b"")),
    "before a hello": framed(Ping(0)),
    "of the hub": framed(Hello(PROTOCOL, Member(0, 0, "", ""))),
    "of no rank of this job": framed(Hello(PROTOCOL, Member(2, 0, "", ""))),
    "of another version": framed(Hello(PROTOCOL + 1, Member(1, 0, "", ""))),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_message_ends_the_connection(job: Job, garbage: bytes) -> None:
    """After the right proof too, and not the ranks; a refusal says why."""
    with Stranger(job.ranks[0]) as stranger:
        said = stranger.say(garbage).heard()
    assert b"another version" in said or garbage != GARBAGE["of another version"]


async def slowly(argument: bytes) -> bytes:
    await asyncio.sleep(60)  # until the hub's end
    return b""


@pytest.mark.parametrize("said", [HELLO, FOREIGN, Answered(0, {}), Report("", 0, b""), QUESTION])
def test_a_client_asks_once_and_is_no_rank(job: Job, said: Message) -> None:
    """It says nothing else."""
    job.ranks[0].control_handlers["status"] = slowly
    with Stranger(job.ranks[0]) as client:
        client.asks().say(said).heard()


def test_a_child_brings_ranks_of_this_job_only(job: Job) -> None:
    job.ranks[0].world_size = 3
    with Stranger(job.ranks[0]) as child:
        child.hello(2).say(Members(joined=(Member(3, 0, "", ""),))).heard()


def test_a_flood_of_messages_ends_its_connection(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a rank sends, over a few seconds; here of few, which a busy machine takes too."""
    monkeypatch.setattr("hooktrace.ranks.channel.connection._PER_SECOND", 50)
    job.ranks[0].world_size = 3
    with Stranger(job.ranks[0]) as flood:
        flood.hello(2).say(framed(Ping(0)) * 20_000).heard()


def test_a_message_comes_in_pieces_of_any_size(job: Job) -> None:
    """A byte at a time, and several at once; half of one holds up nobody."""
    job.ranks[0].world_size = 3
    with Stranger(job.ranks[0], b"") as child:
        child.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in child.proof + framed(Hello(PROTOCOL, Member(2, 0, "", ""))):
            child.say(bytes([byte]))
        child.say(framed(Ping(0)) * 3 + framed(Ping(0))[:5])
        answer = b""
        while answer.count(b"pong") < 3:
            answer += child.recv(1000)


def test_of_those_who_have_not_said_who_they_are_the_oldest_are_closed(job: Job) -> None:
    """64 may be open, whether they have the token or not; ranks and clients stay."""
    job.ranks[0].world_size = 3
    job.ranks[0].control_handlers["status"] = slowly
    with ExitStack() as stack:
        friend = stack.enter_context(Stranger(job.ranks[0])).hello(2)
        stack.enter_context(Stranger(job.ranks[0])).asks()
        known = stack.enter_context(Stranger(job.ranks[0]))
        silent = [stack.enter_context(Stranger(job.ranks[0], b"")) for _ in range(70)]
        known.heard()
        silent[0].heard()
        assert silent[-1].is_open()
        assert wait_for(lambda: len(job.ranks[0].children.connections()) == 67)
        assert friend.say(Ping(0)).recv(1000)


def test_clients_are_few(job: Job) -> None:
    """Or they could make all ranks answer without end; the one too many is told so."""
    job.ranks[0].control_handlers["status"] = slowly
    with ExitStack() as stack:
        clients = [stack.enter_context(Stranger(job.ranks[0])).asks() for _ in range(33)]
        assert sum(b"too many" in client.recv(1000) for client in clients) == 1


def test_a_child_that_never_reads_is_let_go_of(job: Job) -> None:
    """What all are told waits for it in vain, in bounded memory; who reads gets all of it."""
    hub, told = job.ranks[0], 0
    hub.world_size = 3
    heard: list[bytes] = []
    job.ranks[1].notice_handlers["much"] = heard.append
    with Stranger(hub) as child:
        child.hello(2)
        assert wait_for(lambda: 2 in hub.roster)
        while 2 in hub.roster and told < 20:
            hub.run(lambda: hub.notice(Notice("much", bytes(4 << 20))))
            told += 1
            assert wait_for(lambda: len(heard) == told)  # noqa: B023  # called at once
        assert wait_for(lambda: 2 in hub.lost)


def test_last_words_are_heard_although_sending_fails_before_they_are_read() -> None:
    """Whoever leaves does not read what comes meanwhile: its end resets the connection."""
    heard: list[object] = []

    class Hears(Connection):
        def received(self, message: object, arrived_ns: int) -> None:
            heard.append(message)

        def disconnected(self) -> None:
            heard.append(self.goodbye)

    ours, theirs = socket.socketpair()
    connection = Hears(b"", time.perf_counter_ns, HELLO)
    connection.transport = SimpleNamespace(get_extra_info=lambda _: ours)
    connection.known = True
    with ours, theirs:
        theirs.sendall(framed(Notice("news", b"of a hang")) + framed(Goodbye("end")))
        theirs.shutdown(socket.SHUT_WR)
        connection.connection_lost(ConnectionResetError())
    assert heard == [Notice("news", b"of a hang"), Goodbye("end"), "end"]
