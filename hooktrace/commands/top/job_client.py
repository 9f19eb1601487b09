"""Asks a job's hub over the client of ``hooktrace ctl``; connects anew where the hub went away.

Command, carried out by all ranks --CommandResult--> lines
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from ...ranks.control.client import Client
from ...ranks.control.messages import Command, CommandResult
from ...ranks.whole_job.view import LOOK
from ...records.errors import UsageError

_ANSWER_S = 5.0

T = TypeVar("T")


class JobClient:
    """``connect``: makes a connection to the hub, wherever it is by now.

    What it asks raises ``UsageError`` where there is no answer.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def look(self, model: str) -> bytes:
        """Return a ``JobSnapshot`` as msgpack."""
        return self._asked(lambda client: client.ask(LOOK, model.encode(), _ANSWER_S))

    def command(self, command: Command) -> list[str]:
        """Return what came of a command, as lines."""
        outcome = self._asked(lambda client: client.command(command, _ANSWER_S))
        return list(_lines(command, outcome))

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _asked(self, ask: Callable[[Client], T]) -> T:
        if self._client is None:
            self._client = self._connect()
        try:
            return ask(self._client)
        except UsageError:
            self.close()
            raise


def _is_other_thread(stack: str) -> bool:
    """The main thread, which trains, comes first."""
    return "'MainThread'" not in stack.partition("\n")[0]


def _lines(command: Command, outcome: CommandResult) -> Iterator[str]:
    """Yield what the asked rank says, or how all ranks took it."""
    if command.verb == "stacks":
        done = outcome.ranks.get(command.rank)
        if done is not None:
            threads = sorted((done.trouble or done.text).split("\n\n"), key=_is_other_thread)
            yield from [f"rank {command.rank}", *"\n\n".join(threads).splitlines()]
        for silent in outcome.silent:
            if silent.rank == command.rank:
                yield f"rank {silent.rank} did not answer: {silent.state} {silent.why}"
        return
    troubles = {done.trouble for done in outcome.ranks.values() if done.trouble}
    well = [done.text for done in outcome.ranks.values() if not done.trouble]
    if well:
        yield f"{len(well)} ranks: {well[0]}"
    for trouble in sorted(troubles):
        count = sum(done.trouble == trouble for done in outcome.ranks.values())
        yield f"{count} ranks: {trouble}"
    if outcome.silent:
        yield f"{len(outcome.silent)} ranks did not answer"
