"""The loop: ask the hub each second, draw, and do what keys say.

Without a terminal it is one picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from ...ranks.control.client import Client
from ...ranks.whole_job.snapshot import JobSnapshot
from ...ranks.whole_job.view import LOOK
from ...records.errors import UsageError
from ..ctl import address_of
from .keys import Keys, keys
from .picture import SORTS, Picture, View

_ANSWER_S = 5.0
_PERIOD_S = 1.0


def run_top(run: Path | None, *, connect: str | None) -> None:
    """Show the job of a run's directory, or of the hub at ``HOST:PORT``, until the key q.

    Raises ``UsageError`` where the hub is not reached.
    """
    hub = Hub(lambda: Client(address_of(run, connect)))
    console = Console(highlight=False, markup=False)
    try:
        Top(hub, str(run if connect is None else connect), console).run()
    finally:
        hub.close()


class Hub:
    """A job's hub; ``connect`` makes a connection to it, wherever it is by now."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def look(self, model: str) -> JobSnapshot:
        """Return how the job is.  Raises ``UsageError`` where there is no answer."""
        if self._client is None:
            self._client = self._connect()
        try:
            data = self._client.ask(LOOK, model.encode(), _ANSWER_S)
        except UsageError:
            self.close()
            raise
        return msgspec.msgpack.decode(data, type=JobSnapshot)

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


class Top:
    """What is shown, and until when.  ``name``: of the run, or of where it was asked.

    Raises ``UsageError`` where the hub does not answer at first.
    """

    def __init__(self, hub: Hub, name: str, console: Console) -> None:
        self._hub, self._name, self._console = hub, name, console
        self._shown = hub.look("")
        self._asked_s = self._answered_s = time.monotonic()
        self.view = View()
        self.goes_on = True

    @property
    def picture(self) -> Picture:
        """What is to be seen now."""
        return Picture(self._name, self.view, self._shown)

    def run(self) -> None:
        """Show the job until the key q, or once where standard output is no terminal."""
        if not self._console.is_terminal:
            self._console.print(self.picture, crop=False)
            return
        with keys() as typed, Live(console=self._console, screen=True, auto_refresh=False) as live:
            while self.goes_on:
                live.update(self.picture, refresh=True)
                self.turn(typed)

    def turn(self, typed: Keys) -> None:
        """Wait for keys or for the time to ask again, and do that."""
        pressed = typed.wait(max(self._asked_s + _PERIOD_S - time.monotonic(), 0.0))
        for key in pressed:
            if key == "q":
                self.goes_on = False
            elif key == "s":
                self.view = replace(self.view, sort=_after(self.view.sort, SORTS))
            elif key == "m" and self._shown.models:
                model = _after(self.view.model or self._shown.model, self._shown.models)
                self.view = replace(self.view, model=model)
        if not pressed or "m" in pressed:
            self._look()

    def _look(self) -> None:
        self._asked_s = time.monotonic()
        try:
            self._shown = self._hub.look(self.view.model)
        except UsageError as error:
            silent_s = time.monotonic() - self._answered_s
            trouble = f"this is {silent_s:.0f} s old, the job does not answer: {error}"
        else:
            self._answered_s, trouble = time.monotonic(), ""
        self.view = replace(self.view, trouble=trouble)


def _after(one: str, names: tuple[str, ...]) -> str:
    """Return the name after one; the first where it is not among them."""
    return names[(names.index(one) + 1) % len(names)] if one in names else names[0]
