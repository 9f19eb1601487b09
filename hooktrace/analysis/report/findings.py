"""What is wrong and what is slow, in sentences, ranked by the milliseconds to be gained.

    ModelFacts --each of RULES--> Finding(sentence, gain, evidence, fix) --ranked--> report
    Run --recorded--> a Finding of each hang, and of each kind of anomaly --------------^

A gain is an upper bound in ns a step, computed from the records by the arithmetic that stands in
its rule's docstring; ``None`` where nothing can be computed.  Gains overlap: the exposed time is
one pool that most of them draw from, so they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from ...records import AnomalyRecord, Unit
from ...records.addresses import address
from ...records.anomalies import anomaly_kind
from ...records.hang import hang_kind
from ...records.units import listed, named_ranks
from ..run import Hang, Run, hangs
from . import rules
from .facts import Finding, ModelFacts

Rule = Callable[[ModelFacts], Iterator[Finding]]

_OF_BOTH = (
    rules.saves_less_than_it_costs,
    rules.ranks_wait,
    rules.slow_steps_cost,
    rules.error_is_large,
)

RULES: tuple[Rule, ...] = (
    rules.communication_is_exposed,
    rules.last_bucket_is_large,
    rules.small_buckets,
    rules.hook_sends_what_it_gets,
    *_OF_BOTH,
)

UNIT_RULES: tuple[Rule, ...] = (rules.communication_is_exposed, *_OF_BOTH)
"""Of a sharded model, whose units do not wait for the last gradient."""

HUNG = "ranks_hung"
"""The ``rule`` of a hang's finding."""

LEAST = 0.005
"""Share of the step's period below which a gain is not worth a sentence."""

SMALL = 0.03
"""Share of the step's period below which a gain is small; also where the median period may be off
by more than the gain."""

_Seen = tuple[AnomalyRecord, Unit | None]
"""An anomaly, and the unit's collective that it was in."""


def findings(model: ModelFacts) -> list[Finding]:
    """Return what the rules say of a model, the largest gain first."""
    period = model.period.p50 if model.period is not None else 0.0
    least, small = LEAST * period, max(SMALL * period, model.period_noise_ns or 0.0)
    found = []
    for rule in UNIT_RULES if model.is_sharded else RULES:
        for one in rule(model):
            said = replace(one, rule=rule.__name__, docs=address("report", rule.__name__))
            if one.gain_ns is not None and not one.is_kept:
                if one.gain_ns < least:
                    continue
                if one.gain_ns < small:  # nothing lossy is worth that
                    said = replace(said, is_small=True, lossy_fix="")
            found.append(said)
    return sorted(found, key=lambda one: -(one.gain_ns or 0.0))


def recorded(run: Run, models: Collection[str]) -> list[Finding]:
    """Return what ranks recorded of some models: hangs, and a finding for each kind of anomaly.

    Hangs without an end come first, then anomalies, wrong gradients in front, then hangs that went
    on.  Of a hang's step no rule speaks, since no statistics have it; nor is it called a stall.
    """
    hung = [one for one in hangs(run) if one.record.model in models]
    seen: dict[str, list[_Seen]] = {}
    steps = {one.record.step for one in hung}
    for track in run.tracks:
        for one in track.records.anomalies:
            if one.model in models and not (one.kind == "stall" and one.step in steps):
                entry = track.entries.get((one.model, one.rebuild, one.bucket))
                seen.setdefault(one.kind, []).append((one, None if entry is None else entry.unit))
    by_begin = sorted(seen.values(), key=lambda of: min(one.step for one, _ in of))
    return [
        *(_of_hang(one) for one in hung if not one.went_on),
        *sorted(map(_of_anomaly, by_begin), key=lambda one: not one.is_wrong),
        *(_of_hang(one) for one in hung if one.went_on),
    ]


def _of_hang(one: Hang) -> Finding:
    """Return the finding of a hang, without a gain: no other step would have been any shorter."""
    record, kind = one.record, hang_kind(one.record.kind)
    return Finding(
        rule=HUNG,
        docs=record.docs,
        sentence=_closed(record.sentence, begins_with_name=bool(record.unit)),
        bucket=record.bucket if record.bucket >= 0 else None,
        rank=record.ranks[0] if len(record.ranks) == 1 else None,
        steps=(record.step,),
        evidence=(
            kind.sentence[:1].lower() + kind.sentence[1:],
            one.outcome,
            f"recorded in the file{'s' * (len(one.ranks) != 1)} of {named_ranks(one.ranks)}; "
            "hooktrace hang says more",
        ),
        fix=_closed(kind.fix_of(record.unit)),
        is_wrong=not one.went_on,
        is_kept=True,
        severity="warn" if one.went_on else "fail",
    )


def _closed(text: str, *, begins_with_name: bool = False) -> str:
    """Return a sentence with its first letter, which a module's name keeps, and its end."""
    first = text[:1] if begins_with_name else text[:1].upper()
    return text and first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _of_anomaly(seen: Sequence[_Seen]) -> Finding:
    """Return the finding of one kind of anomaly, of which ranks recorded these; none has a gain."""
    first, unit = min(seen, key=lambda pair: pair[0].step)
    kind = anomaly_kind(first.kind)
    where = f"step {first.step}"
    where += "" if first.bucket < 0 else f", {unit or f'bucket {first.bucket}'}"
    where += "" if first.rank is None else f", rank {first.rank}"
    evidence = [f"first at {where}: {first.message}"]
    steps = sorted({one.step for one, _ in seen})
    if len(seen) > 1:
        ranks = {one.rank for one, _ in seen if one.rank is not None}
        noun = "step" if len(steps) == 1 else "steps"
        evidence.append(f"seen on {named_ranks(ranks)}, in {noun} {listed(steps, most=6)}")
    return Finding(
        rule=first.kind,
        docs=first.docs,
        bucket=first.bucket if first.bucket >= 0 else None,
        rank=first.rank,
        steps=tuple(steps),
        sentence=f"{kind.said(sharded=unit is not None).sentence}: first seen at {where}.",
        evidence=tuple(evidence),
        is_wrong=kind.gradients_wrong,
        severity=kind.severity,
    )
