"""How far predictions are off, and what they advise.

Case: measured beside predicted --> a row of the table
Place: a network and model, its cases, what is advised --scores--> errors, intervals, good and harm
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...analysis.whatif.choice import Prediction
from ...records.summary import percentile
from .table import Row, interval_of_median

NOISE = 0.03
"""Share of a step: settings that are so close to each other are as good (advise.LEAST_SHARE)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One setting on one network: ms of each settled step, and the prediction.

    ``slower_ms``: how much longer a step computed in this run than in the calibrated one, without
    what is communicated and what hooks do: the same work, on a machine that is not as fast then.
    """

    network: str
    model: str
    hook: str
    cap_mb: float
    steps_ms: tuple[float, ...]
    prediction: Prediction
    slower_ms: float = 0.0

    @property
    def measured_ms(self) -> float:
        """The median step."""
        return statistics.median(self.steps_ms)

    @property
    def error(self) -> float:
        """How much longer than measured the prediction is, as a share."""
        return self.prediction.step_ms / self.measured_ms - 1

    @property
    def error_at_one_speed(self) -> float:
        """The same, had the machine computed as fast as in the calibrated run."""
        return self.prediction.step_ms / (self.measured_ms - self.slower_ms) - 1

    @property
    def is_inside(self) -> bool:
        """Whether what was measured lies in the prediction's interval."""
        return self.prediction.low_ms <= self.measured_ms <= self.prediction.high_ms

    @property
    def row(self) -> Row:
        """What is printed of it."""
        one = self.prediction
        low, high = interval_of_median(self.steps_ms)
        return Row(
            f"{self.network}, {self.model}: {self.hook}, {self.cap_mb:g} MB",
            [100 * self.error], "%",
            note=f"measured {self.measured_ms:.1f} ms ({low:.1f} to {high:.1f}), predicted "
            f"{one.step_ms:.1f} ({one.low_ms:.1f} to {one.high_ms:.1f})",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One model on one network.

    ``today``: hook and cap of its calibrated run; ``advised``: those to change to, the first first;
    none: leave it as it is.  All of them are among ``cases``.
    """

    cases: tuple[Case, ...]
    today: tuple[str, float]
    advised: tuple[tuple[str, float], ...]

    def measured_ms(self, setting: tuple[str, float]) -> float:
        """Return what was measured of a hook and cap."""
        return next(c.measured_ms for c in self.cases if (c.hook, c.cap_mb) == setting)

    @property
    def is_best_in_front(self) -> bool:
        """Whether the fastest setting, or one as good, is among the first two that are advised."""
        best = min(case.measured_ms for case in self.cases)
        front = self.advised[:2] or (self.today,)
        return min(map(self.measured_ms, front)) <= best * (1 + NOISE)

    @property
    def harm(self) -> float:
        """By what share the worst advised setting was slower than today's; 0 if none was."""
        worst = max(map(self.measured_ms, self.advised), default=0.0)
        return max(0.0, worst / self.measured_ms(self.today) - 1)


def scores(places: Sequence[Place], of: str) -> Iterator[Row]:
    """Yield how good the predictions are, and what they advise; ``of``: which ones these are."""
    cases = [case for place in places for case in place.cases]
    errors = [100 * abs(case.error) for case in cases]
    count = f"{len(cases)} cases"
    yield Row(f"{of}: error of the step time, median of all", errors, "%", budget=5.0, note=count)
    yield Row(f"{of}: the same, 90th percentile", [percentile(errors, 0.9)], "%", budget=12.0)
    errors = [100 * abs(case.error_at_one_speed) for case in cases]
    what = f"{of}: the same, had the machine computed as fast as in the calibrated run"
    yield Row(what, [percentile(errors, 0.9)], "%")
    outside = 100 * sum(not case.is_inside for case in cases) / len(cases)
    yield Row(f"{of}: measured outside of the 95 % interval", [outside], "%", budget=10.0)
    missed = 100 * sum(not place.is_best_in_front for place in places) / len(places)
    note = f"{len(places)} networks and models; within {NOISE:.0%} of the best is as good"
    yield Row(f"{of}: best not among the first two advised", [missed], "%", budget=10.0, note=note)
    harm = 100 * max(place.harm for place in places)
    yield Row(f"{of}: largest loss by an advised change", [harm], "%", budget=100 * NOISE)
