"""The loop: ask the hub each second, draw, and do what keys say.

Without a terminal it is one picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
from rich.console import Console
from rich.live import Live

from ...ranks.control.messages import Command
from ...ranks.whole_job.snapshot import JobSnapshot
from ...records.errors import UsageError
from .job_client import JobClient
from .keys import Keys, keys
from .picture import Picture
from .state import View, pressed

_PERIOD_S = 1.0


def watch(hub: JobClient, name: str, console: Console | None = None) -> None:
    """Show a job until the key q, or once where standard output is no terminal.

    ``name``: of what is shown.  Raises ``UsageError`` where the hub does not answer at first.
    """
    console = console or Console(highlight=False, markup=False)
    shown = _decode(hub.look(""))
    if not console.is_terminal:
        console.print(Picture(name, View(), shown), crop=False)
        return
    with keys() as typed, Live(console=console, screen=True, auto_refresh=False) as live:
        top = Top(hub, name, shown, lambda picture: live.update(picture, refresh=True))
        while top.goes_on:
            top.turn(typed)


class Top:
    """What is shown, and until when; ``draw`` puts a picture on the screen."""

    def __init__(
        self, hub: JobClient, name: str, shown: JobSnapshot, draw: Callable[[Picture], None]
    ) -> None:
        self._hub = hub
        self._name = name
        self._shown = shown
        self._draw = draw
        self._asked_s = self._answered_s = time.monotonic()
        self.view = View()
        self.goes_on = True

    def turn(self, typed: Keys) -> None:
        """Draw, wait for a key or for the time to ask again, and do that."""
        self._draw(Picture(self._name, self.view, self._shown))
        left_s = self._asked_s + _PERIOD_S - time.monotonic()
        key = typed.wait(max(left_s, 0.0))
        if key is None:
            self._look()
        elif key == "q" and self.view.page is None:
            self.goes_on = False
        else:
            self._press(key)

    def _press(self, key: str) -> None:
        model = self.view.model
        self.view, command = pressed(self.view, key, self._shown)
        if command is not None:
            self._ask(command)
        if self.view.model != model:
            self._look()

    def _ask(self, command: Command) -> None:
        what = f"{command.verb} {command.number or command.rank}"
        self._draw(
            Picture(self._name, replace(self.view, said=f"asking for {what} ..."), self._shown)
        )
        try:
            lines = self._hub.command(command)
        except UsageError as error:
            self.view = replace(self.view, said=f"{what}: {error}")
            return
        if command.verb == "stacks":
            self.view = replace(self.view, page=tuple(lines), top=0, rank=command.rank, said="")
        else:
            self.view = replace(self.view, said=f"{what}: {'; '.join(lines)}")

    def _look(self) -> None:
        self._asked_s = time.monotonic()
        try:
            self._shown = _decode(self._hub.look(self.view.model))
        except UsageError as error:
            silent_s = time.monotonic() - self._answered_s
            self.view = replace(
                self.view, trouble=f"this is {silent_s:.0f} s old, the job does not answer: {error}"
            )
        else:
            self._answered_s = time.monotonic()
            self.view = replace(self.view, trouble="")


def _decode(data: bytes) -> JobSnapshot:
    return msgspec.msgpack.decode(data, type=JobSnapshot)
