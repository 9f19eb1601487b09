"""Predictions held beside runs: today's configuration and the best two, measured.

Advised --choices--> Demo, or the user's script (script.py) --> record files --> Verified

PowerSGD compresses from its third step on, on either; a calibration tries it at that work.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from ...analysis.report.run_files import read_run
from ...analysis.report.run_report import build_report
from ...analysis.timeline import Timeline
from ...analysis.whatif.advise import Advised
from ...analysis.whatif.answer import Answer, prediction_fields
from ...analysis.whatif.choice import Choice, Prediction
from ...analysis.whatif.words import cap_text, step_ms, within
from ...records.errors import UsageError

MODEL = "char_transformer"
"""The demo's."""
_DEADLINE_S = 1800


class Subject(Protocol):
    """What is run."""

    @property
    def name(self) -> str:
        """What it is called."""

    def run(self, answer: Answer, choice: Choice, steps: int, folder: Path) -> Timeline:
        """Run a choice for so many steps; raises ``UsageError``."""


class Demo:
    """``hooktrace demo``."""

    name = "hooktrace demo"

    def run(self, answer: Answer, choice: Choice, steps: int, folder: Path) -> Timeline:
        """Run it on as many ranks as the run had."""
        command = demo_command(answer, choice, steps, folder)
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        if ended.returncode:
            why = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UsageError(f"{' '.join(command[1:])} failed: {why}")
        return read_run(folder)


@dataclass(frozen=True, slots=True)
class Verified:
    """A prediction, and the median step of a run that was made of it."""

    prediction: Prediction
    measured_ms: float
    steps: int

    @property
    def off(self) -> float:
        """By what share of what was measured the prediction is longer."""
        return self.prediction.step_ms / self.measured_ms - 1

    @property
    def is_within(self) -> bool:
        """Whether the measured step lies in the prediction's interval."""
        return self.prediction.low_ms <= self.measured_ms <= self.prediction.high_ms

    def fields(self, answer: Answer) -> dict[str, Any]:
        """Return it for programs."""
        found = prediction_fields(answer, self.prediction)
        return {**found, "measured_ms": self.measured_ms, "measured_steps": self.steps}


def check_subject(answer: Answer, subject: Subject, steps: int) -> None:
    """Raise ``UsageError`` for what cannot be verified, before anything is run."""
    if isinstance(subject, Demo) and answer.today.model != MODEL:
        raise UsageError(
            f"--verify alone runs hooktrace demo, and this run is of {answer.today.model}; pass "
            "the command that started it too, as --verify -- torchrun --nproc-per-node 2 train.py"
        )
    if steps < 1:
        raise UsageError(f"{steps} steps are no training; pass --verify-steps 100 or more")


def verify(advised: Advised, subject: Subject, steps: int) -> Iterator[Verified]:
    """Run today's configuration and the best two, and yield each once it has been measured.

    Raises ``UsageError`` where that cannot be.  The records go, but for those of a run that cannot
    be measured.
    """
    answer = advised.answer
    check_subject(answer, subject, steps)
    folder = Path(mkdtemp(prefix="hooktrace-verify-"))
    is_kept = False
    try:
        for i, one in enumerate([answer.baseline, *to_run(advised)]):
            yield _verified(answer, one, subject, steps, folder / str(i))
    except UsageError:
        is_kept = True
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def to_run(advised: Advised) -> list[Prediction]:
    """Return what is run beside today's configuration: the best two, or what came nearest."""
    best = [one.prediction for one in advised.lines[:2]]
    if not best and advised.best is not None:
        best = [advised.best.prediction]
    return best


def _verified(
    answer: Answer, one: Prediction, subject: Subject, steps: int, folder: Path
) -> Verified:
    report = build_report(subject.run(answer, one.choice, steps, folder))
    facts = next(m.facts for m in report.models if m.facts.model == answer.today.model)
    if facts.period is None:
        raise UsageError(
            f"no step of {steps} has settled; pass --verify-steps 100 or more, and a command that "
            "trains for as many"
        )
    return Verified(one, facts.period.p50 / 1e6, facts.steps)


def demo_command(answer: Answer, choice: Choice, steps: int, out: Path) -> list[str]:
    """Return how to run a choice on the demo."""
    cap = answer.cap(choice)
    return [
        *(sys.executable, "-m", "hooktrace", "demo", "--hook", answer.hook(choice)),
        *([] if cap is None else ["--bucket-cap-mb", f"{cap:g}"]),
        *("--ranks", str(choice.ranks or answer.today.ranks), "--steps", str(steps)),
        *("--port", "0", "--out", str(out)),
    ]


def print_announced(console: Console, advised: Advised, subject: Subject, steps: int) -> None:
    """Print what is about to be run, for real."""
    answer = advised.answer
    runs = "; ".join(
        f"{answer.hook(one.choice)}, cap {cap_text(answer.cap(one.choice))}"
        for one in [answer.baseline, *to_run(advised)]
    )
    console.print(Text(f"Running {subject.name}, {steps:,} steps each: {runs}"), soft_wrap=True)


def print_verified(
    console: Console, answer: Answer, subject: Subject, found: Iterable[Verified]
) -> None:
    """Print how far each prediction was off, as soon as that is known."""
    for number, line in enumerate(verified_lines(answer, found)):
        if number == 0:
            said = f"Verified on {subject.name}, here and now:"
            console.print(Text(said, style="bold"), soft_wrap=True)
        console.print(Text(f" {line}"), soft_wrap=True)


def verified_lines(answer: Answer, found: Iterable[Verified]) -> Iterator[str]:
    """Yield a line a run."""
    for one in found:
        choice = one.prediction.choice
        what = f"{answer.hook(choice)}, cap {cap_text(answer.cap(choice))}"
        yield (
            f"{what}: measured {step_ms(one.measured_ms)} ms, the median of {one.steps:,} steps; "
            f"predicted {step_ms(one.prediction.step_ms)} ({within(one.prediction)}), "
            f"{100 * abs(one.off):.1f} % {'too long' if one.off > 0 else 'too short'}"
            f"{'' if one.is_within else ', outside of its interval'}"
        )
