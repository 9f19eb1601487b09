"""Answers of which one knows what is to be advised; nothing is simulated."""

from __future__ import annotations

from typing import Any

import numpy as np

from hooktrace.analysis.whatif.answer import Answer, Today
from hooktrace.analysis.whatif.choice import Choice, Prediction
from hooktrace.analysis.whatif.work import Network, SimulatedStep

KINDS = {
    "allreduce": "lossless", "fp16": "cast", "quantize-per-channel-512": "quantised",
    "powersgd-rank4": "low-rank", "noop": "local",
}  # fmt: skip
SLOW = Network(latency_ns=60_000.0, bandwidth=50e6)
NOISE = np.linspace(-1.0, 1.0, 41)
"""Of the resampled run, the same in all predictions of an answer."""


def predicted(
    step_ms: float, hook: str | None = None, cap: float | None = None, *,
    error: float | None = 0.0, own_ms: float = 0.0, place: Choice | None = None, **more: Any,
) -> Prediction:  # fmt: skip
    """Return a prediction; ``own_ms``: noise that it shares with no other."""
    place = place or Choice()
    own = own_ms * np.cos(np.arange(NOISE.size) * 2.5 + len(hook or "") + (cap or 0.0))
    draws = step_ms * (1 + 0.05 * NOISE) + own
    none = np.zeros(0)
    return Prediction(
        choice=Choice(hook, cap, place.ranks, place.network, place.per_host),
        step_ms=step_ms, low_ms=float(draws.min()), high_ms=float(draws.max()),
        exposed_ms=step_ms - 50.0, wire_bytes=16.8e6, error=error, lossy=error != 0.0,
        simulated=SimulatedStep(step_ms * 1e6, 0.0, 0.0, none, none, none), draws_ms=draws, **more,
    )  # fmt: skip


def answer(*predictions: Prediction, now_ms: float = 400.0, **more: Any) -> Answer:
    """Return an answer about an all-reduce of 25 MB buckets that takes so long."""
    today = Today(
        model="net", hook="allreduce", ranks=2, backend="gloo", bucket_cap_mb=25.0,
        step_ms=now_ms + 2.0, steps=180, network=SLOW,
        low=Network(60_000.0, 48e6), high=Network(60_000.0, 52e6),
    )  # fmt: skip
    place = predictions[0].choice if predictions else Choice()
    elsewhere = Choice(None, None, place.ranks, place.network, place.per_host)
    baseline = predicted(now_ms, place=elsewhere)
    fields: dict[str, Any] = {"today": today, "replayed": predicted(now_ms), "baseline": baseline}
    return Answer(**{**fields, "predictions": predictions, "kinds": KINDS, **more})
