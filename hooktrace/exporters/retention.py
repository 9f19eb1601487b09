"""Which steps a record file keeps in detail: with all their buckets and stages.

    StepRecord, its buckets, anomalies --> DetailPolicy.choose --> none, the step, or the last two;
                                           the step says what it was kept for

A step's own line takes some 400 bytes, its detail 340 a bucket: with 25 buckets, 256 MiB hold
30,000 steps in full and 400,000 with the defaults.  Kept are

- the first ``first_steps`` steps of each of a model's first ``REBUILDS`` bucket rebuilds;
- ``window_steps`` in a row of every ``window_every``, by step number: the same on all ranks;
- slow steps.  A step is slow when its period is longer than ``slow_factor`` times the median of the
  last ``LAST`` steps, or its exposed time is, by at least ``EXPOSED_SHARE`` of the median period
  (exposed time alone may be microseconds, of which twice as many mean nothing).  A period is known
  when the next step begins: then both are kept;
- steps that somebody asked for while training ran, the same on all ranks;
- steps that were checked for the error; and incomplete ones, those with an exception or an anomaly.

At most ``extra_share`` of the steps are kept for being slow, and as many for what went wrong,
``BURST`` of them at once: else a job whose steps alternate in length would keep every other one.

Everything here is bounded, and decided by the records alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ..records import AnomalyRecord, BucketRecord, CompletedStep, StepRecord
from ..records.errors import check_counts
from ..records.last_used import Bounded, LastUsed
from ..records.running_median import RunningMedian
from ..records.step import KeptFor

REBUILDS = 16
LAST = 128
ENOUGH = 32
"""Steps before which none is slow: there is no telling what is usual."""
EXPOSED_SHARE = 0.1
BURST = 50
MOST_MODELS = 64
"""Models that are told apart; of more, the one that was seen least recently is forgotten."""
_MOST_ANOMALIES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a record file keeps in detail; the module's docstring says when a step is slow.

    ``window_every=1`` keeps every step, for as long as the file's size allows.  Raises
    ``ValueError`` for a number out of range.
    """

    first_steps: int = 1000
    window_steps: int = 20
    window_every: int = 1000
    slow_factor: float = 1.5
    extra_share: float = 0.02

    def __post_init__(self) -> None:
        check_counts(0, first_steps=self.first_steps, window_steps=self.window_steps)
        check_counts(1, window_every=self.window_every)
        if not self.slow_factor > 1:
            raise ValueError(f"slow_factor is {self.slow_factor}; pass more than 1")
        if not 0 <= self.extra_share <= 1:
            raise ValueError(f"extra_share is {self.extra_share}; pass a share from 0 to 1")


class DetailPolicy:
    """Chooses step by step, and keeps at hand the last step that each model was left without.

    ``left_out`` counts the ``steps`` and ``buckets`` that were not chosen, and the ``slow_steps``
    beyond their share.
    """

    def __init__(self, retention: Retention) -> None:
        self.left_out = Counter(slow_steps=0, steps=0, buckets=0)
        self._retention = retention
        self._models = LastUsed[str, _Model](lambda: _Model(retention.extra_share), MOST_MODELS)
        self._anomalies: Bounded[tuple[str, int], None] = Bounded(_MOST_ANOMALIES)
        self._asked: dict[str, tuple[int, int]] = {}

    def expect(self, anomalies: Iterable[AnomalyRecord]) -> None:
        """Take note of anomalies whose steps are still to come."""
        for anomaly in anomalies:
            self._anomalies[anomaly.model, anomaly.step] = None

    def ask(self, model: str, first: int, steps: int) -> None:
        """Keep so many steps of a model from ``first`` on.  Any thread."""
        self._asked = {**self._asked, model: (first, first + steps)}

    def choose(self, completed: CompletedStep) -> tuple[CompletedStep, ...]:
        """Return what to keep in detail: nothing, the step, or the model's one before and the step.

        Each step is asked about once.
        """
        step, _ = completed
        model = self._models.of(step.model)
        model.next_step(step.rebuild, self._retention)
        period, exposed = model.slow(step, self._retention.slow_factor)
        why = self._why_wanted(completed, model)
        with_previous = period and model.left is not None
        if with_previous or ((period or exposed) and why is None):
            if model.slow_ones.take():
                why = why or "slow"
            else:
                self.left_out["slow_steps"] += 1
                with_previous = False
        if why is None:
            model.left = completed
            self.left_out.update(steps=1, buckets=len(completed[1]))
            return ()
        previous = self._take_back(model) if with_previous else ()
        model.left = None
        return (*previous, (replace(step, kept_for=why), completed[1]))

    def choose_last(self) -> list[CompletedStep]:
        """Return each model's last step where it was left out: it says where a job ended."""
        return [step for model in self._models.values() for step in self._take_back(model)]

    def _take_back(self, model: _Model) -> tuple[CompletedStep, ...]:
        completed, model.left = model.left, None
        if completed is None:
            return ()
        self.left_out.subtract({"steps": 1, "buckets": len(completed[1])})
        return (completed,)

    def _why_wanted(self, completed: CompletedStep, model: _Model) -> KeptFor | None:
        """Return why a step is kept even if it is not slow.

        By number before all else: what is kept for that stands for the others.
        """
        step, buckets = completed
        rules = self._retention
        wrong = self._went_wrong(step, buckets)
        asked = self._asked.get(step.model, (0, 0))
        reasons: dict[KeptFor, bool] = {
            "window": step.step % rules.window_every < rules.window_steps,
            "first": model.is_first,
            "asked": asked[0] <= step.step < asked[1],
            "checked": any(b.error is not None for b in buckets),
        }
        why = next((why for why, holds in reasons.items() if holds), None)
        return why or ("wrong" if wrong and model.troubles.take() else None)

    def _went_wrong(self, step: StepRecord, buckets: Sequence[BucketRecord]) -> bool:
        if (step.model, step.step) in self._anomalies:
            del self._anomalies[step.model, step.step]
            return True
        return not step.complete or any(b.exception is not None for b in buckets)


class _Model:
    """What is known of one model's steps so far."""

    def __init__(self, extra_share: float) -> None:
        self.slow_ones = _Allowance(extra_share)
        self.troubles = _Allowance(extra_share)
        self.left: CompletedStep | None = None
        self._rebuild: int | None = None
        self._rebuilds = 0
        self._steps = 0
        self.is_first = False
        """Whether the step is one of the first of its rebuild."""
        self._periods = RunningMedian(LAST, ENOUGH)
        self._exposed = RunningMedian(LAST, ENOUGH)

    def next_step(self, rebuild: int, rules: Retention) -> None:
        """Go on to a step of ``rebuild``."""
        if rebuild != self._rebuild:
            self._rebuild = rebuild
            self._rebuilds += 1
            self._steps = 0
        self._steps += 1
        self.is_first = self._rebuilds <= REBUILDS and self._steps <= rules.first_steps
        self.slow_ones.refill()
        self.troubles.refill()

    def slow(self, step: StepRecord, factor: float) -> tuple[bool, bool]:
        """Return whether the step's period and its exposed time are slow, then count them in."""
        if not step.counts:
            return False, False
        usual_period, usual_exposed = self._periods.median, self._exposed.median
        period = exposed = False
        if usual_period is not None and step.previous_period_ns is not None:
            period = step.previous_period_ns > factor * usual_period
        if usual_period is not None and usual_exposed is not None and step.exposed_ns is not None:
            least_ns = usual_exposed + EXPOSED_SHARE * usual_period
            exposed = step.exposed_ns > max(factor * usual_exposed, least_ns)
        if step.previous_period_ns is not None:
            self._periods.add(step.previous_period_ns)
        if step.exposed_ns is not None:
            self._exposed.add(step.exposed_ns)
        return period, exposed


class _Allowance:
    """Lets a share of the steps through, up to ``BURST`` that were saved up."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = float(BURST) if share else 0.0

    def refill(self) -> None:
        """Count a step."""
        self._saved = min(self._saved + self._share, BURST)

    def take(self) -> bool:
        """Return whether one more may be kept, and count it."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
