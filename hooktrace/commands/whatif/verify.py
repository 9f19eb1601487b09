"""Predictions held beside runs: the demo with today's configuration and the best two, measured.

Advised --choices--> hooktrace demo, one after another --> record files --> Verified, by how much

The demo's PowerSGD compresses from its second step on, as a calibration tries it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.text import Text

from ...analysis.report.run_files import read_run
from ...analysis.report.run_report import build_report
from ...analysis.whatif.advise import Advised
from ...analysis.whatif.answer import Answer, prediction_fields
from ...analysis.whatif.choice import Choice, Prediction
from ...analysis.whatif.words import cap_text, step_ms, within
from ...records.errors import UsageError

MODEL = "char_transformer"
"""The demo's."""
_DEADLINE_S = 1800


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


def verify(advised: Advised, steps: int) -> list[Verified]:
    """Run today's configuration and the best two; raises ``UsageError`` where that cannot be."""
    answer = advised.answer
    if answer.today.model != MODEL:
        raise UsageError(
            f"--verify runs hooktrace demo, and this run is of {answer.today.model}; run the "
            "advised code yourself, and hold it beside this run with hooktrace compare"
        )
    best = [one.prediction for one in advised.lines[:2]]
    if not best and advised.best is not None:
        best = [advised.best.prediction]
    with TemporaryDirectory() as folder:
        runs = enumerate([answer.baseline, *best])
        return [_verified(answer, one, steps, Path(folder) / str(i)) for i, one in runs]


def _verified(answer: Answer, one: Prediction, steps: int, out: Path) -> Verified:
    command = demo_command(answer, one.choice, steps, out)
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"{' '.join(command[1:])} failed: {why}")
    facts = next(m.facts for m in build_report(read_run(out)).models)
    if facts.period is None:
        raise UsageError(f"no step of {steps} has settled; pass --verify-steps 100 or more")
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


def print_verified(console: Console, answer: Answer, found: Sequence[Verified]) -> None:
    """Print how far each prediction was off."""
    console.print(Text("Verified on hooktrace demo, here and now:", style="bold"))
    for line in verified_lines(answer, found):
        console.print(Text(f" {line}"), soft_wrap=True)


def verified_lines(answer: Answer, found: Sequence[Verified]) -> Iterator[str]:
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
