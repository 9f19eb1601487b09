"""What a question about a run is answered with: what was measured, and what is predicted.

Answer --> terminal.py, page.py, answer_json; advise.py looks for the best of a large one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .choice import Choice, Prediction
from .work import Network

LIMITS = "Not modelled: other traffic on the network, memory pressure, loss curves."


@dataclass(frozen=True, slots=True)
class Today:
    """The run that was made.

    ``hook``: its label.  ``step_ms``: the median of ``steps`` settled steps of all ranks, measured.
    ``network``: fitted to its collectives, and ``low`` and ``high`` ends of its 95 % interval.
    """

    model: str
    hook: str
    ranks: int
    backend: str
    bucket_cap_mb: float | None
    step_ms: float
    steps: int
    network: Network
    low: Network
    high: Network


@dataclass(frozen=True, slots=True)
class Answer:
    """Predictions for one model.

    ``replayed``: the run's own configuration, simulated.  ``baseline``: the same on the ranks and
    network that were asked for; ``predictions``: the others, of the same call as ``baseline``.
    ``kinds``: of each hook that was tried, what it does to gradients (``lossless``, ``cast``, ...).
    """

    today: Today
    replayed: Prediction
    baseline: Prediction
    predictions: tuple[Prediction, ...]
    kinds: Mapping[str, str]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences of all predictions, each once."""
        every = (self.replayed, self.baseline, *self.predictions)
        return tuple(dict.fromkeys(text for one in every for text in one.doubts))

    @property
    def misfit(self) -> float:
        """By what share of the measured step the replay of the run's own is off, either way."""
        return abs(self.replayed.step_ms / self.today.step_ms - 1) if self.today.step_ms else 0.0

    @property
    def is_elsewhere(self) -> bool:
        """Whether other ranks, or another network, were asked for."""
        asked = self.baseline.choice
        return (asked.ranks, asked.network, asked.per_host) != (None, None, None)

    def hook(self, choice: Choice) -> str:
        """Return the label of a choice's hook."""
        return choice.hook or self.today.hook

    def cap(self, choice: Choice) -> float | None:
        """Return a choice's limit of bucket sizes in MB; ``None`` where nobody knows it."""
        return self.today.bucket_cap_mb if choice.bucket_cap_mb is None else choice.bucket_cap_mb

    def network(self, choice: Choice) -> Network:
        """Return a choice's network."""
        return choice.network or self.today.network


def prediction_fields(answer: Answer, one: Prediction) -> dict[str, Any]:
    """Return a prediction for programs: times in ms, sizes in bytes, rates in bytes a second."""
    choice, network = one.choice, answer.network(one.choice)
    return {
        "hook": answer.hook(choice),
        "bucket_cap_mb": answer.cap(choice),
        "ranks": choice.ranks or answer.today.ranks,
        "network": {
            "bytes_per_second": network.bandwidth,
            "latency_ns": network.latency_ns,
            "per_host": choice.per_host or network.per_host,
            "is_fitted": choice.network is None,
        },
        "step_ms": one.step_ms,
        "low_ms": one.low_ms,
        "high_ms": one.high_ms,
        "exposed_ms": one.exposed_ms,
        "wire_bytes": one.wire_bytes,
        "error": one.error,
        "lossy": one.lossy,
        "doubts": list(one.doubts),
    }


def answer_fields(answer: Answer) -> dict[str, Any]:
    """Return an answer for programs; only ``measured`` was measured."""
    today = answer.today
    return {
        "measured": {
            "model": today.model,
            "hook": today.hook,
            "ranks": today.ranks,
            "backend": today.backend,
            "bucket_cap_mb": today.bucket_cap_mb,
            "step_ms": today.step_ms,
            "steps": today.steps,
        },
        "replayed": prediction_fields(answer, answer.replayed),
        "baseline": prediction_fields(answer, answer.baseline),
        "predictions": [prediction_fields(answer, one) for one in answer.predictions],
        "limits": LIMITS,
    }
