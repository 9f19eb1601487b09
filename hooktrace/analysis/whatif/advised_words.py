"""Sentences of the advice: what a change gains, what it loses, and when there is none."""

from __future__ import annotations

from ...records.units import percent
from .advise import AGARWAL, LEAST_SHARE, MOST_MISFIT, Advice, Advised
from .answer import Answer
from .choice import Prediction
from .words import change_text, error_text, place_text, step_ms


def verdict(advised: Advised) -> str:
    """Return the first line: that something is worth changing, or why nothing is."""
    answer = advised.answer
    where = f", on {place_text(answer, answer.baseline.choice)}" if answer.is_elsewhere else ""
    if advised.lines:
        return f"Predicted to be worth a change{where}, of {_simulated(advised)} simulated:"
    if answer.misfit > MOST_MISFIT:
        other = "a calibrated run of plain all-reduce may tell more"
        if answer.hook(answer.replayed.choice) == "allreduce":
            other = "a calibrated run on a machine that does nothing else may tell more"
        return (
            f"Unknown what is worth a change{where}: the replay of this run's own step is off by "
            f"{percent(answer.misfit)}, so nothing is advised. What it misses is not known; "
            f"{other}."
        )
    said = f"Leave it as it is{where}. {_nothing(advised)}"
    return f"{said} {AGARWAL}" if advised.is_compression_no_help else said


def _nothing(advised: Advised) -> str:
    of = f"Of {_simulated(advised)} simulated"
    best = advised.best
    if best is None:
        return f"{of} none is predicted to be faster."
    gain = (
        f"{change_text(advised.answer, best.prediction.choice)}, gains {step_ms(best.gain_ms)} ms"
    )
    if best.share < LEAST_SHARE:
        return f"{of} the fastest, {gain}, {percent(best.share)} of a step: not worth a change."
    return (
        f"{of} the fastest, {gain}, but the prediction may be off by more: 95 % "
        f"{gain_within(best)} ms."
    )


def _simulated(advised: Advised) -> str:
    count = len(advised.answer.predictions)
    return "1 configuration" if count == 1 else f"{count} configurations"


def gain_within(one: Advice) -> str:
    """Return the 95 % interval of a gain in ms."""
    return f"{step_ms(one.low_ms)} to {step_ms(one.high_ms)}".replace("-", "\N{MINUS SIGN}")


def advice_text(answer: Answer, one: Advice) -> str:
    """Return what to change, and what it gains."""
    return (
        f"{change_text(answer, one.prediction.choice)}: gains {step_ms(one.gain_ms)} ms a step, "
        f"{percent(one.share)} (95 % {gain_within(one)} ms): {step_ms(one.prediction.step_ms)} in "
        f"place of {step_ms(answer.baseline.step_ms)} ms, predicted"
    )


def loss_text(answer: Answer, one: Prediction) -> str:
    """Return what a prediction loses of the gradients."""
    if not one.lossy:
        return "loses nothing"
    kind = answer.kinds.get(answer.hook(one.choice), "lossy")
    return (
        f"lossy ({kind}): in one step {error_text(one)} of the gradients' norm; what that does to "
        "the loss is not predicted"
    )
