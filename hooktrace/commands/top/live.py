"""The loop: ask the hub each second, and draw.  Without a terminal it is one picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live

from ...ranks.channel.messages import HubAddress
from ...ranks.control import ask
from ...ranks.whole_job.job_steps import JobSnapshot
from ...ranks.whole_job.view import LOOK
from ...records.errors import UsageError
from ..ctl import address_of
from .picture import Picture

_ANSWER_S = 5.0
_PERIOD_S = 1.0


def run_top(run: Path | None, *, connect: str | None, sort: str, model: str) -> None:
    """Show the job of a run's directory, or of the hub at ``HOST:PORT``, until Ctrl-C.

    Raises ``UsageError`` where the hub is not reached.
    """
    console = Console(highlight=False, markup=False)
    name = str(run if connect is None else connect)
    drawn = pictures(lambda: snapshot_of(address_of(run, connect), model), name, sort)
    if not console.is_terminal:
        console.print(next(drawn), crop=False)
        return
    first = next(drawn)  # what cannot be reached is said on the screen that there was
    screen = Live(first, console=console, screen=True, auto_refresh=False)
    with screen, suppress(KeyboardInterrupt):
        for picture in drawn:
            screen.update(picture, refresh=True)


def snapshot_of(address: HubAddress, model: str) -> JobSnapshot:
    """Return how the job of a hub is.  Raises ``UsageError`` where there is no answer."""
    answer = ask(address, LOOK, model.encode(), _ANSWER_S)
    return msgspec.msgpack.decode(answer, type=JobSnapshot)


def pictures(look: Callable[[], JobSnapshot], name: str, sort: str) -> Iterator[Picture]:
    """Yield how the job is, each second; where it does not answer, how it was, and why.

    ``name``: of the run, or of where it was asked.  Raises ``UsageError`` where the hub does not
    answer at first.
    """
    shown, answered_s, trouble = look(), time.monotonic(), ""
    while True:
        yield Picture(name, shown, sort=sort, trouble=trouble)
        time.sleep(_PERIOD_S)
        try:
            shown, answered_s, trouble = look(), time.monotonic(), ""
        except UsageError as error:
            silent_s = time.monotonic() - answered_s
            trouble = f"this is {silent_s:.0f} s old, the job does not answer: {error}"
