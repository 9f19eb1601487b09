"""A question about a run, checked, and answered by the replay.

Timeline --read_calibration, fit_network--> Source --ask(Question)--> Answer
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ...records.errors import UsageError
from ..timeline import Timeline
from .advise import space
from .answer import Answer, Today
from .calibration import Calibration, read_calibration
from .choice import Choice
from .fit_network import NetworkFit, fit_network
from .predict import predict, replay
from .simulate import simulate_many
from .step_work import case_of, network_for
from .sweep import BANDWIDTHS, Sweep

_MIB = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """A model of a calibrated run, and what its collectives say of the network."""

    calibration: Calibration
    fit: NetworkFit

    @property
    def cap_mb(self) -> float | None:
        """DDP's limit of bucket sizes in the run, MiB."""
        cap = self.calibration.bucket_cap_bytes
        return None if cap is None else cap / _MIB


def read_source(timeline: Timeline, model: str | None) -> Source:
    """Read a model of a run, the only one where none is named; raises ``UsageError``."""
    names = timeline.models
    if model is not None and model not in names:
        raise UsageError(f"no model is called {model!r}; pass --model one of {', '.join(names)}")
    if model is None and len(names) > 1:
        raise UsageError(f"the run has several models; pass --model one of {', '.join(names)}")
    calibration = read_calibration(timeline, model or names[0])
    return Source(calibration, fit_network(timeline, model or names[0]))


def grid(source: Source, hooks: Sequence[str], caps_mb: Sequence[float]) -> list[Choice]:
    """Return hooks by limits of bucket sizes, each as the run has it where none is named.

    Where neither is named: all hooks.  Raises ``UsageError`` for what cannot be predicted.
    """
    calibration = source.calibration
    known = list(calibration.costs)
    if wrong := [hook for hook in hooks if hook not in known]:
        raise UsageError(
            f"no hook {wrong[0]!r} was tried in this run (those that do not average over all ranks "
            f"never are); pass --hook one of {', '.join(known)}"
        )
    if wrong_caps := [cap for cap in caps_mb if not 0 < cap < math.inf]:
        raise UsageError(
            f"a bucket cannot hold {wrong_caps[0]:g} MB; pass --bucket-cap-mb above 0, as 25"
        )
    named = list(hooks) or ([calibration.hook] if caps_mb else known)
    limits: list[float | None] = [_unlike(cap, source.cap_mb) for cap in caps_mb] or [None]
    every = [Choice(_unlike(hook, calibration.hook), cap) for hook in named for cap in limits]
    return [choice for choice in dict.fromkeys(every) if choice != Choice()]


def _unlike(value: T, now: T | None) -> T | None:
    """Return what is asked for, ``None`` where the run has it."""
    return None if value == now else value


def everything(source: Source) -> list[Choice]:
    """Return all that could be changed."""
    return space(source.calibration.costs, source.calibration.hook, source.cap_mb)


def ask(source: Source, choices: Iterable[Choice], place: Choice | None = None) -> Answer:
    """Predict choices of hook and buckets, all on the ranks and network of ``place``."""
    place = place or Choice()
    asked = [replace(place, hook=c.hook, bucket_cap_mb=c.bucket_cap_mb) for c in choices]
    baseline, *predictions = predict(source.calibration, source.fit, [place, *asked])
    return Answer(
        today=_today(source),
        replayed=replay(source.calibration, source.fit),
        baseline=baseline,
        predictions=tuple(predictions),
        kinds={label: cost.rule.kind for label, cost in source.calibration.costs.items()},
    )


def sweep_of(source: Source, place: Choice) -> Sweep:
    """Predict every hook on every bandwidth, with all else as at ``place``."""
    calibration, fitted = source.calibration, source.fit.network
    hooks = [calibration.hook, *(label for label in calibration.costs if label != calibration.hook)]
    hooks = [label for label in hooks if calibration.costs[label].rule.kind != "local"]
    here = network_for(place, fitted)
    networks = [
        replace(here, bandwidth=bandwidth) for bandwidth in (*BANDWIDTHS.tolist(), here.bandwidth)
    ]
    steps = simulate_many([
        case_of(calibration, replace(place, hook=label, network=network), fitted)
        for label in hooks
        for network in networks
    ])  # fmt: skip
    found = np.array([step.step_ns / 1e6 for step in steps]).reshape(len(hooks), len(networks))
    return Sweep(
        hooks=tuple(hooks),
        bandwidths=BANDWIDTHS,
        step_ms=found[:, :-1],
        today=calibration.hook,
        bandwidth=here.bandwidth,
        here_ms=float(found[0, -1]),
        ranks=place.ranks or calibration.ranks,
        latency_ns=here.latency_ns,
        is_named=place.network is not None,
    )


def _today(source: Source) -> Today:
    calibration, fit = source.calibration, source.fit
    return Today(
        model=calibration.model,
        hook=calibration.hook,
        ranks=calibration.ranks,
        backend=calibration.backend,
        bucket_cap_mb=source.cap_mb,
        step_ms=calibration.step_ns / 1e6,
        steps=len(calibration.steps_ns),
        network=fit.network,
        low=fit.low,
        high=fit.high,
    )
