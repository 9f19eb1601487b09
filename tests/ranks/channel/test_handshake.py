"""Who listens where the hub did, and is another user of the host: learns nothing, and is no hub."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from hooktrace.ranks.channel.handshake import NONCE_BYTES, PROOF_BYTES, TOKEN_BYTES
from hooktrace.ranks.channel.meeting import Meeting
from hooktrace.ranks.channel.messages import Ask, HubAddress, Member, Notice, Welcome
from hooktrace.ranks.control import ask
from hooktrace.records.errors import UsageError
from tests.ranks.channel.jobs import Job, has_parent, wait_for
from tests.ranks.channel.strangers import framed

AS_THE_HUB = framed(Welcome(Member(0, 1, "a host", "h")))
AS_THE_HUB += framed(Notice("said", b"the job is over")) + framed(Ask(0, "who", b"", 5.0))
"""What a hub says: a welcome, something to all ranks, a question to this one."""

PARTS: dict[str, Callable[[bytes], bytes]] = {
    "silent": lambda _: b"",
    "guesses": lambda _: hmac.digest(bytes(16), b"", "sha256") + AS_THE_HUB,
    "reflects": lambda proof: proof + AS_THE_HUB,
}
"""What the other user answers to a proof, and then plays the hub."""


class OtherUser:
    """Listens, plays a ``part`` to whoever connects, and keeps what is said there."""

    def __init__(self, part: str) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._part = PARTS[part]
        self._server = socket.create_server(("127.0.0.1", 0))
        place = self._server.getsockname()
        self.as_hub = HubAddress(
            places=(place,), token=self.token.hex(), member=Member(0, 1, "h", "h")
        )
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._server.accept()
                line.settimeout(1.0)
                said = b""
                with line, suppress(OSError):
                    line.sendall(secrets.token_bytes(NONCE_BYTES))
                    said = line.recv(NONCE_BYTES + PROOF_BYTES, socket.MSG_WAITALL)
                    line.sendall(self._part(said[NONCE_BYTES:]))
                    while more := line.recv(1 << 16):
                        said += more
                self.heard.append(said)

    def __enter__(self) -> OtherUser:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)
        assert all(self.token not in said and b"hello" not in said for said in self.heard)


@pytest.mark.parametrize("part", PARTS)
def test_who_takes_a_dead_hubs_port_learns_nothing_and_is_no_hub(part: str) -> None:
    """The store still says that it is there, and ranks look for it again and again."""
    heard: list[bytes] = []
    job = Job(2, begun=False)
    with OtherUser(part) as other:
        Meeting(job.store).publish(other.as_hub)
        rank = job.begin(1)
        try:
            rank.notice_handlers["said"] = heard.append
            rank.handlers["who"] = lambda argument: heard.append(argument) or b"1"
            assert wait_for(lambda: len(other.heard) >= 2)
            assert not has_parent(rank)
        finally:
            rank.close()
        assert heard == []
        with pytest.raises(UsageError):  # ``channel.json`` names that port, too
            ask(other.as_hub, "who", b"")
