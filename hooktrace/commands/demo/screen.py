"""The progress line: an exporter that paints what the drain brings, off the training thread."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ...records import Batch, StepRecord
from ...records.units import ms

_PLAIN_LINES = 8
"""How many progress lines a run prints where standard output is no terminal."""


class Screen:
    """Shows step, loss, step time and exposed communication while training runs.

    The training thread only leaves its numbers (``note``); painting happens with each export.
    On a terminal it is one moving bar, elsewhere a few plain lines.
    """

    name = "screen"

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._now = (0, float("nan"))
        self._seen: StepRecord | None = None
        self._printed = 0
        self._console = Console(highlight=False, markup=False)
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self._console,
            auto_refresh=False,
            expand=True,
        )
        self._task = self._progress.add_task("", total=steps, numbers="")

    def start(self, parameters: int, characters: int, url: str) -> None:
        """Say what is trained on what and where the metrics are, and show the bar."""
        self._console.print(
            f"{parameters / 1e6:.1f} M parameters, {characters / 1e6:.1f} M characters of the "
            f"standard library's source\nmetrics of rank 0 while it runs: {url}",
            soft_wrap=True,
        )
        if self._console.is_terminal:
            self._progress.start()

    def step_ended(self, step: int, loss: float) -> None:
        """Take the number of finished steps and the last loss; called by the training thread."""
        self._now = (step, loss)

    def export(self, batch: Batch) -> None:
        """Paint, with the last step that the drain has brought."""
        for step, _ in batch.steps:
            if step.counts:
                self._seen = step
        self._paint()

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._paint()
        if self._console.is_terminal:
            self._progress.stop()

    def _paint(self) -> None:
        step, loss = self._now
        numbers = f"loss {loss:.2f}"
        seen = self._seen
        if seen is not None and seen.previous_period_ns and seen.exposed_ns is not None:
            numbers += f", {ms(seen.previous_period_ns)} a step, {ms(seen.exposed_ns)} exposed"
        if self._console.is_terminal:
            self._progress.update(self._task, completed=step, numbers=numbers)
            self._progress.refresh()
        elif step * _PLAIN_LINES // self._steps > self._printed:
            self._printed = step * _PLAIN_LINES // self._steps
            self._console.print(f"step {step}/{self._steps}  {numbers}", soft_wrap=True)
