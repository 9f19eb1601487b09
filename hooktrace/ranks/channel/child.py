"""One connection from below, and what it was asked."""

from __future__ import annotations

import asyncio

from .connection import Connection
from .messages import CONTROL, Answered, Down, Member


class Child:
    """One connection from below; ``below`` are the ranks that it stands for, its own too."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.member: Member | None = None
        self.below: dict[int, Member] = {}
        self.asked: dict[int, asyncio.Future[Answered | None]] = {}
        self.is_busy = False
        """Whether a control client waits for an answer."""

    @property
    def is_control(self) -> bool:
        """Whether it only asks."""
        return self.member is not None and self.member.rank == CONTROL

    def send(self, message: Down) -> None:
        """Send it a message."""
        self.connection.send(message)

    def ask(self, number: int, body: bytes) -> asyncio.Future[Answered | None]:
        """Ask; the answer is ``None`` where the connection ended before."""
        future = asyncio.get_running_loop().create_future()
        self.asked[number] = future
        self.connection.send_body(body)
        return future

    def answered(self, answer: Answered) -> None:
        """Take an answer; one that comes too late is not awaited any more."""
        future = self.asked.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def over(self) -> None:
        """Nobody will answer."""
        for future in self.asked.values():
            if not future.done():
                future.set_result(None)
        self.asked.clear()
