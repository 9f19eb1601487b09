"""Predictions and advice in a terminal: what was measured first, what is not modelled last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...records.units import megabytes
from .advise import Advised
from .advised_words import advice_text, loss_text, verdict
from .answer import LIMITS, Answer
from .choice import Choice, Prediction
from .words import cap_text, error_text, headline, network_lines, step_ms, within

Code = Callable[[Answer, Choice], str]
"""Returns the lines that make a choice."""

COLUMNS = ("", "cap", "step", "95 %", "of now", "exposed", "sent", "error", "")


def print_answer(console: Console, answer: Answer) -> None:
    """Print what was measured, the predictions as a table, doubts, and what is not modelled."""
    _print_head(console, answer)
    console.print()
    console.print(_predictions(answer))
    _print_end(console, answer)


def print_advised(console: Console, advised: Advised, code: Code) -> None:
    """Print what to change, with the code to paste, or that it is best left as it is."""
    answer = advised.answer
    _print_head(console, answer)
    console.print()
    console.print(Text(verdict(advised), style="bold"))
    for number, one in enumerate(advised.lines, 1):
        console.print(_item(f"{number}.", Text(advice_text(answer, one), style="bold")))
        style = "yellow" if one.prediction.lossy else "dim"
        console.print(_item("", Text(loss_text(answer, one.prediction), style=style)))
        pasted = Text(code(answer, one.prediction.choice), style="cyan")
        console.print(Padding(pasted, (0, 0, 1, 4)), soft_wrap=True)
    _print_end(console, answer)


def _print_head(console: Console, answer: Answer) -> None:
    console.print(Text(headline(answer), style="bold"))
    for line in network_lines(answer):
        console.print(Text(line, style="dim"))


def _print_end(console: Console, answer: Answer) -> None:
    for text in answer.doubts:
        console.print(_item("-", Text(text, style="yellow")))
    console.print(Text(LIMITS, style="dim italic"))


def _predictions(answer: Answer) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold",
                  title_justify="left", title_style="bold", caption_justify="left")  # fmt: skip
    table.title = "Predicted, none of it was run: times in ms, sizes in MB"
    table.caption = (
        "cap: limit of bucket sizes; sent: by a rank in a step; error: relative L2 of its own "
        "gradients in one step"
    )
    for i, name in enumerate(COLUMNS):
        left = i in (0, len(COLUMNS) - 1)
        table.add_column(
            name, justify="left" if left else "right", no_wrap=bool(i), overflow="fold"
        )
    for one in (answer.baseline, *answer.predictions):
        is_now = one is answer.baseline
        style = "bold" if is_now else ""
        table.add_row(*(Text(cell, style=style) for cell in cells(answer, one)))
    return table


def cells(answer: Answer, one: Prediction) -> Sequence[str]:
    """Return a prediction's row of ``COLUMNS``."""
    return (
        answer.hook(one.choice) + (", as it is" if one is answer.baseline else ""),
        cap_text(answer.cap(one.choice)),
        step_ms(one.step_ms),
        within(one),
        "" if one is answer.baseline else of_now(answer, one),
        step_ms(one.exposed_ms),
        megabytes(one.wire_bytes),
        error_text(one),
        "lossy" if one.lossy else "",
    )


def of_now(answer: Answer, one: Prediction) -> str:
    """Return by how much of the step a prediction differs from what is."""
    share = 100 * (one.step_ms / answer.baseline.step_ms - 1) if answer.baseline.step_ms else 0.0
    return f"{round(share, 1) + 0.0:+.1f} %".replace("-", "\N{MINUS SIGN}")  # no -0.0


def _item(label: str, body: Text) -> Padding:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=2, justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, body)
    return Padding(grid, (0, 0, 0, 1))
