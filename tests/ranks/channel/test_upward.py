"""What a node sends its parent together."""

from __future__ import annotations

import time
from typing import Any

from hooktrace.ranks.channel.clock import ClockOffset
from hooktrace.ranks.channel.messages import (
    Member,
    Message,
    Ping,
    Report,
    Welcome,
    decode_up,
    encode,
)
from hooktrace.ranks.channel.node import Node
from hooktrace.ranks.channel.upward import Upward


class Line:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[Message]] = []

    def send(self, message: Message) -> None:
        self.send_body(encode(message))

    def send_body(self, *bodies: bytes) -> None:
        self.sent.append([decode_up(body) for body in bodies])


def test_the_first_report_of_an_interval_takes_its_ping_along() -> None:
    """A parent of very many hosts is woken once, and not twice."""
    offset, line = ClockOffset(time.perf_counter_ns, lambda _: None), Line()
    child = Upward(Node(Member(1, 1, "b", "b"), 2, time.perf_counter_ns, offset.offset_at), offset)
    taken: Any = child
    taken.connection, taken._welcome = line, Welcome(Member(0, 1, "a", "a"), is_hub=True)
    report = Report("steps", 1, b"of a second")
    child.send(report)
    child.send(report)
    assert line.sent == [[Ping(1), report], [report]]
