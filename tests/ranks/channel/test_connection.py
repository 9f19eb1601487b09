"""Who is let in, and what it may do there: over real connections, beside ranks that go on."""

from __future__ import annotations

import asyncio
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hooktrace.ranks.channel.connection import Connection
from hooktrace.ranks.channel.handshake import listen
from hooktrace.ranks.channel.messages import (
    MOST_BYTES,
    PROTOCOL,
    Answered,
    Ask,
    Goodbye,
    Hello,
    Member,
    Members,
    Notice,
    Ping,
    Pong,
    Report,
)
from tests.ranks.channel.jobs import Job, ask, wait_for
from tests.ranks.channel.strangers import Stranger, framed

SOON_S = 60.0
"""In which the ranks must answer, whatever strangers do; alone they take some milliseconds."""


@pytest.fixture
def job(capfd: pytest.CaptureFixture[str]) -> Iterator[Job]:
    """Two ranks, which answer before and after a test, and print nothing."""
    with Job(2) as ranks:
        assert goes_on(ranks)
        yield ranks
        assert goes_on(ranks)
    assert capfd.readouterr() == ("", "")


def goes_on(job: Job) -> bool:
    return sorted(ask(job.ranks[0], "who", b"", SOON_S).answers) == [0, 1]


@pytest.mark.parametrize(
    "said", [bytes(48), b"\xff" * 49, b"GET / HTTP/1.1\r\n" * 3, bytes(1 << 20)]
)
def test_a_stranger_gets_no_word(job: Job, said: bytes) -> None:
    """Its connection is closed, after random bytes that tell nothing."""
    with Stranger(job.ranks[0], said) as stranger:
        assert stranger.is_closed_without_a_word()
    with Stranger(job.ranks[0], job.ranks[0].children.token + said) as with_token:
        assert with_token.is_closed_without_a_word()
    assert len(job.ranks[0].children.connections()) == 1


def test_a_part_of_a_proof_tells_nothing(job: Job) -> None:
    """Right or wrong, nothing happens before all of it is there: no byte can be guessed alone."""
    with Stranger(job.ranks[0], b"") as guess, Stranger(job.ranks[0], b"") as part:
        wrong = guess.proof[:-1] + bytes([guess.proof[-1] ^ 1])
        guess.send(wrong[:-1])
        part.send(part.proof[:-1])
        assert goes_on(job)
        assert guess.is_open()
        assert part.is_open()
        guess.send(wrong[-1:])
        part.send(part.proof[-1:] + framed(Hello(PROTOCOL + 1, Member(1, 0, "", ""))))
        assert guess.is_closed_without_a_word()
        part.take_proof()
        part.socket.settimeout(SOON_S)
        assert b"another version" in part.socket.recv(1000)


def test_a_proof_is_right_once(job: Job) -> None:
    """Whoever has heard one, and of two connections each has its own."""
    with Stranger(job.ranks[0]) as friend, Stranger(job.ranks[0], friend.proof) as echo:
        assert echo.is_closed_without_a_word()
        assert friend.is_open()


GARBAGE = {
    "no msgpack": struct.pack("<I", 5) + b"\xc1\xff\xff\xff\xff",
    "empty": struct.pack("<I", 0),
    "too long": struct.pack("<I", MOST_BYTES + 1),
    "longest": struct.pack("<I", 0xFFFFFFFF) + bytes(1 << 20),
    "deep": struct.pack("<I", 20_000) + b"\x91" * 20_000,
    "many": struct.pack("<I", 5) + b"\xdd\xff\xff\xff\xff",
    "of a parent": framed(Pong(0, 0, 0, None, 0)),
    "rank": framed(Hello(PROTOCOL, Member(1 << 40, 0, "", ""))),
    "name": framed(Report("x" * 100, 0, b"")),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_message_ends_the_connection(job: Job, garbage: bytes) -> None:
    """After the right proof too, and not the ranks."""
    with Stranger(job.ranks[0]) as stranger:
        stranger.send(garbage)
        assert stranger.is_ended()


@pytest.mark.parametrize(
    "message",
    [
        Ping(0),
        Answered(0, {1: b"not of this one"}),
        Members(joined=(Member(0, 0, "", ""),)),
        Report("who", 0, b""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_nothing_is_taken_before_a_hello(job: Job, message: Ping | Answered) -> None:
    """And nothing but questions of a control client."""
    with Stranger(job.ranks[0]) as stranger:
        assert stranger.say(message).is_ended()
    with Stranger(job.ranks[0]) as client:
        if not isinstance(message, Ping):
            assert client.control().say(message).is_ended()
    with Stranger(job.ranks[0]) as twice:
        assert twice.control().control().is_ended()


@pytest.mark.parametrize("rank", [0, 2, 1 << 31, -1])
def test_a_child_brings_ranks_of_this_job_only(job: Job, rank: int) -> None:
    """No names without end, and not the hub itself."""
    job.ranks[0].world_size = 2
    roster = dict(job.ranks[0].roster)
    with Stranger(job.ranks[0]) as child:
        if rank >= 0:
            assert child.hello(rank).is_ended()
    with Stranger(job.ranks[0]) as child:
        child.hello(1)
        assert child.say(Members(joined=(Member(rank, 0, "", ""),))).is_ended()
    assert wait_for(lambda: job.ranks[0].roster[0] == roster[0])
    assert wait_for(lambda: sorted(job.ranks[0].roster) == [0, 1])


def test_a_flood_of_messages_ends_its_connection(job: Job) -> None:
    """5000 a second, over a few seconds, are more than a rank sends."""
    with Stranger(job.ranks[0]) as flood:
        flood.control()
        flood.send(framed(Ping(0)) * 300_000)  # of which a slow minute allows as many
        assert flood.is_ended()


def test_a_message_that_stops_in_its_middle_holds_up_nobody(job: Job) -> None:
    """Neither while its connection stands nor when it ends."""
    with ExitStack() as stack:
        for cut in (1, 3, 4, 5):
            child = stack.enter_context(Stranger(job.ranks[0]))
            child.send(framed(Report("who", 0, b"1234567890"))[:cut])
        assert goes_on(job)
    assert wait_for(lambda: len(job.ranks[0].children.connections()) == 1)


def test_a_message_comes_in_pieces_of_any_size(job: Job) -> None:
    """A byte at a time, and several at once."""
    with Stranger(job.ranks[0], b"") as child:
        said = child.proof + framed(Hello(PROTOCOL, Member(-1, 0, "", "")))
        child.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in said:
            child.send(bytes([byte]))
        child.send(framed(Ping(0)) * 3)
        child.socket.settimeout(SOON_S)
        answer = b""
        while answer.count(b"pong") < 3:
            piece = child.socket.recv(1000)
            assert piece
            answer += piece


def test_of_those_who_have_not_said_who_they_are_the_oldest_are_closed(job: Job) -> None:
    """64 may be open, whether they have the token or not; a client stays whoever comes later."""
    with ExitStack() as stack:
        friend = stack.enter_context(Stranger(job.ranks[0])).control()
        known = stack.enter_context(Stranger(job.ranks[0]))
        silent = [stack.enter_context(Stranger(job.ranks[0], b"")) for _ in range(70)]
        assert known.is_ended()
        assert silent[0].is_ended()
        assert silent[-1].is_open()
        assert wait_for(lambda: len(job.ranks[0].children.connections()) <= 66)
        friend.say(Ping(0))
        friend.socket.settimeout(SOON_S)
        assert friend.socket.recv(1000)


def test_only_some_control_clients_at_once(job: Job) -> None:
    """The one too many is told so; each asks one question at a time."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Stranger(job.ranks[0])).control() for _ in range(33)]
        refused = []
        for client in clients:  # whichever was let in last
            client.socket.settimeout(SOON_S)
            if b"too many" in client.socket.recv(1000):
                refused.append(client)
        assert len(refused) == 1
        assert refused[0].is_ended()


def test_two_questions_of_a_client_at_once_end_it(job: Job) -> None:
    """Or a client could make all ranks answer without end."""

    async def slowly(argument: bytes) -> bytes:
        await asyncio.sleep(60)  # until the hub's end
        return b""

    job.ranks[0].control_handlers["status"] = slowly
    with Stranger(job.ranks[0]) as client:
        client.control().say(Ask(0, "status", b"", 1.0)).say(Ask(1, "status", b"", 1.0))
        assert client.is_ended()


@pytest.mark.timeout(120)
def test_a_client_that_never_reads_is_let_go_of(job: Job) -> None:
    """What waits for it is bounded, and so is the memory."""

    async def much(argument: bytes) -> bytes:
        return bytes(4 << 20)

    job.ranks[0].control_handlers["status"] = much
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Stranger(job.ranks[0]) as client:
        client.control()
        for number in range(200):
            client.say(Ask(number, "status", b"", 1.0))
            time.sleep(0.002)
        assert wait_for(lambda: len(job.ranks[0].children.connections()) == 1)
        assert goes_on(job)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_child_that_never_reads_is_let_go_of(job: Job) -> None:
    """What all are told waits for it in vain; those who read get all of it."""
    hub, told = job.ranks[0], 0
    hub.world_size = 3
    heard: list[bytes] = []
    job.ranks[1].notice_handlers["much"] = heard.append
    with Stranger(hub) as child:
        child.hello(2)
        assert wait_for(lambda: 2 in hub.roster)
        while 2 in hub.roster and told < 20:
            hub.tell("much", bytes(4 << 20))
            told += 1
            assert wait_for(lambda: len(heard) == told)  # noqa: B023  # called at once
        assert wait_for(lambda: 2 in hub.lost)
    assert len(hub.children.connections()) == 1


def test_last_words_are_heard_although_sending_fails_before_they_are_read() -> None:
    """Whoever leaves does not read what comes meanwhile: its end resets the connection."""
    news = Notice("news", b"of a hang")

    class Hears(Connection):
        """What its parent says, and how it left."""

        def __init__(self) -> None:
            hello = Hello(PROTOCOL, Member(1, 0, "", ""))
            super().__init__(b"", time.perf_counter_ns, hello)
            self.over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self.heard: list[object] = []

        def received(self, message: object, arrived_ns: int) -> None:
            self.heard.append(message)

        def disconnected(self) -> None:
            self.over.set_result(self.goodbye)

    async def part() -> tuple[str | None, list[object]]:
        ours, theirs = connected()
        connection = Hears()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)
        await asyncio.to_thread(prove_as_listener, theirs, b"")
        while not connection.known:
            await asyncio.sleep(0.01)
        connection.transport.pause_reading()
        connection.send(Report("what the parent", 0, b"does not read"))
        theirs.sendall(framed(news) + framed(Goodbye("end")))
        theirs.close()
        ended = select.poll()
        ended.register(ours, 0)
        assert ended.poll(10_000), "the reset has not come"
        connection.send(Report("to one that", 0, b"is gone"))
        return await asyncio.wait_for(connection.over, 10), connection.heard

    assert asyncio.run(part()) == ("end", [news, Goodbye("end")])


def prove_as_listener(line: socket.socket, token: bytes) -> None:
    """Be the side that was connected to, which knows the token."""
    handshake = listen(token)
    nonce, awaited = next(handshake)
    line.sendall(nonce)
    with pytest.raises(StopIteration) as done:
        handshake.send(line.recv(awaited, socket.MSG_WAITALL))
    line.sendall(done.value.value)


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    return ours, theirs
