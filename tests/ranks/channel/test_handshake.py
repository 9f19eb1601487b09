"""Who listens where the hub did, and is another user of the host: learns nothing, and is no hub."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable

import pytest

from hooktrace.ranks.channel.handshake import NONCE_BYTES, PROOF_BYTES, TOKEN_BYTES
from hooktrace.ranks.channel.meeting import Meeting
from hooktrace.ranks.channel.messages import Ask, HubAddress, Member, Notice, Welcome
from hooktrace.ranks.control.client import Client
from hooktrace.records.errors import UsageError
from tests.ranks.channel.jobs import Job, has_parent, wait_for
from tests.ranks.channel.strangers import framed

AS_THE_HUB = b"".join(
    framed(message)
    for message in (
        Welcome(Member(0, 1, "a host", "h")),
        Notice("said", b"the job is over"),
        Ask(0, "who", b"", 5.0),
    )
)
"""What a hub says: a welcome, something to all ranks, a question to this one."""

Part = Callable[[socket.socket], None]
"""What the other user does with a connection."""


def silence(_: socket.socket) -> None:
    """Wait for what comes without being asked."""


def speak(line: socket.socket) -> None:
    """Be the hub at once."""
    line.sendall(AS_THE_HUB)


def guess(line: socket.socket) -> None:
    """Ask for a proof, as the hub does, and give one of another token."""
    line.sendall(secrets.token_bytes(NONCE_BYTES))
    line.recv(NONCE_BYTES + PROOF_BYTES, socket.MSG_WAITALL)
    line.sendall(hmac.digest(bytes(16), b"", "sha256") + AS_THE_HUB)


def reflect(line: socket.socket) -> None:
    """Give back the proof that came."""
    line.sendall(secrets.token_bytes(NONCE_BYTES))
    came = line.recv(NONCE_BYTES + PROOF_BYTES, socket.MSG_WAITALL)
    line.sendall(came[NONCE_BYTES:] + AS_THE_HUB)


class OtherUser:
    """Listens at ``place``, plays ``part`` to whoever connects, and keeps what is said there."""

    def __init__(self, place: tuple[str, int], part: Part) -> None:
        self._part = part
        self._server = socket.create_server(place)
        self.place: tuple[str, int] = self._server.getsockname()
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            with line:
                self.heard.append(self._all_of(line))

    def _all_of(self, line: socket.socket) -> bytes:
        heard = _Heard(line)
        heard.settimeout(1.0)
        try:
            self._part(heard)
            while heard.recv(1 << 16):
                pass
        except OSError:
            pass
        return bytes(heard.bytes)

    def __enter__(self) -> OtherUser:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)


class _Heard(socket.socket):
    """A connection that keeps what it received."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__(fileno=line.detach())
        self.bytes = bytearray()

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self.bytes += data
        return data


@pytest.fixture(params=[silence, speak, guess, reflect], ids=lambda part: part.__name__)
def part(request: pytest.FixtureRequest) -> Part:
    """What the other user tries."""
    return request.param  # type: ignore[no-any-return]


def test_who_takes_a_dead_hubs_port_learns_nothing_and_is_no_hub(
    part: Part,
) -> None:
    """The store still says that the hub is there, and the ranks look for it again and again."""
    token = secrets.token_bytes(TOKEN_BYTES)
    told: list[bytes] = []
    asked: list[bytes] = []
    job = Job(0)
    job.size, job.hosts, job.clocks = 2, "hh", {1: []}
    with OtherUser(("127.0.0.1", 0), part) as other:
        Meeting(job.store).publish(
            HubAddress(places=(other.place,), token=token.hex(), member=Member(0, 1, "h", "h"))
        )
        rank = job.begin(1)
        try:
            rank.notice_handlers["said"] = told.append
            rank.handlers["who"] = lambda argument: asked.append(argument) or b"1"
            assert wait_for(lambda: len(other.heard) >= 2)
            assert not has_parent(rank)
        finally:
            rank.close()
    assert all(token not in said and b"hello" not in said for said in other.heard)
    assert (told, asked) == ([], [])


def test_a_client_tells_nothing_to_who_is_not_the_hub(
    part: Part,
) -> None:
    """``channel.json`` of a job that was killed names a port that anybody may have now."""
    token = secrets.token_bytes(TOKEN_BYTES)
    with OtherUser(("127.0.0.1", 0), part) as other:
        address = HubAddress(places=(other.place,), token=token.hex())
        with pytest.raises(UsageError):
            Client(address)
        assert wait_for(lambda: other.heard)
    assert all(token not in said and b"hello" not in said for said in other.heard)
