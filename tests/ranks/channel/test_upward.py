"""What a node sends its parent, and when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hooktrace.ranks.channel import upward as upward_module
from hooktrace.ranks.channel.clock import ClockOffset
from hooktrace.ranks.channel.messages import Member, Message, Ping, Report, decode_up, encode
from hooktrace.ranks.channel.node import Node
from hooktrace.ranks.channel.upward import Upward

REPORT = Report("steps", 1, b"of a second")


class Line:
    def __init__(self) -> None:
        self.sent: list[list[Message]] = []
        self.heard_s = time.monotonic() + 1000

    def send(self, message: Message) -> None:
        self.send_body(encode(message))

    def send_body(self, *bodies: bytes) -> None:
        self.sent.append([decode_up(body) for body in bodies])


@pytest.fixture
def child() -> Upward:
    """A node with a parent."""
    offset = ClockOffset(time.perf_counter_ns, lambda _: None)
    upward = Upward(Node(Member(1, 1, "b", "b"), 2, time.perf_counter_ns, offset.offset_at), offset)
    line: Any = Line()
    upward._connection, upward.member = line, Member(0, 1, "a", "a")
    return upward


def test_a_report_takes_the_beat_along(child: Upward, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of an interval; where there is none it beats by itself."""
    line: Any = child._connection

    async def live() -> None:
        ticks: asyncio.Queue[None] = asyncio.Queue()

        async def tick(*_: object, **__: object) -> None:
            await ticks.get()

        async def pass_interval() -> list[list[type]]:
            ticks.put_nowait(None)
            await asyncio.sleep(0.01)
            sent, line.sent = line.sent, []
            return [[type(message) for message in together] for together in sent]

        monkeypatch.setattr(upward_module.asyncio, "wait", tick)
        child._over = asyncio.get_running_loop().create_future()
        staying = asyncio.ensure_future(child.stay())
        assert await pass_interval() == [[Ping]]
        child.send(REPORT)
        child.send(REPORT)
        assert await pass_interval() == [[Ping, Report], [Report]]
        assert await pass_interval() == [[Ping]]
        child.send(REPORT)
        assert await pass_interval() == [[Ping, Report]]
        staying.cancel()

    asyncio.run(live())
