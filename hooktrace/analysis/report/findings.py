"""What is wrong and what is slow, in sentences, ranked by the milliseconds to be gained.

    ModelFacts --each of RULES--> Finding(sentence, gain, evidence, remedy) --ranked--> report

A gain is an upper bound in ns a step, computed from the records by the arithmetic that stands in
its rule's docstring; ``None`` where nothing can be computed.  Gains overlap: the exposed time is
one pool that most of them draw from, so they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from ...records.anomalies import anomaly_kind
from ...records.hang import hang_kind
from ...records.units import listed, named_ranks
from .facts import AnomalyFacts, Finding, HangFacts, ModelFacts
from .rules_compression import (
    error_is_large,
    hook_sends_what_it_gets,
    saves_less_than_it_costs,
)
from .rules_ranks import ranks_wait, slow_steps_cost, steps_stalled
from .rules_time import (
    bucket_is_slow,
    communication_is_exposed,
    hook_holds_the_thread,
    last_bucket_is_large,
    small_buckets,
    unit_is_slow,
    units_are_exposed,
    workers_are_busy,
)


def ranks_hung(model: ModelFacts) -> Iterator[Finding]:
    """Gain: none.  It happened once: without it no other step would have been any shorter.

    Its step is in no statistics, so that neither a stall nor a slow step tells of it once more.
    """
    yield from hang_findings(model.hangs)


def hang_findings(hangs: Sequence[HangFacts]) -> Iterator[Finding]:
    """Yield a finding for each hang."""
    for one in hangs:
        kind = hang_kind(one.kind)
        files = "file" if len(one.recorded_by) == 1 else "files"
        yield Finding(
            rule=ranks_hung.__name__,
            sentence=_closed(one.sentence, begins_with_name=bool(one.unit)),
            bucket=one.bucket if one.bucket >= 0 else None,
            rank=one.ranks[0] if len(one.ranks) == 1 else None,
            steps=(one.step,),
            evidence=(
                kind.sentence[:1].lower() + kind.sentence[1:],
                one.outcome,
                f"recorded in the {files} of {named_ranks(one.recorded_by)}; hooktrace hang says "
                "more",
            ),
            remedy=_closed(kind.remedy_of(one.unit)),
            is_wrong=not one.went_on,
            is_kept=True,
            severity="warn" if one.went_on else "fail",
        )


def _closed(text: str, *, begins_with_name: bool = False) -> str:
    """Return a sentence with its first letter, which a module's name keeps, and its end."""
    first = text[:1] if begins_with_name else text[:1].upper()
    return text and first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


Rule = Callable[[ModelFacts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    communication_is_exposed,
    last_bucket_is_large,
    small_buckets,
    workers_are_busy,
    bucket_is_slow,
    hook_holds_the_thread,
    saves_less_than_it_costs,
    hook_sends_what_it_gets,
    ranks_wait,
    slow_steps_cost,
    steps_stalled,
    error_is_large,
    ranks_hung,
)

UNIT_RULES: tuple[Rule, ...] = (
    units_are_exposed,
    unit_is_slow,
    saves_less_than_it_costs,
    ranks_wait,
    slow_steps_cost,
    steps_stalled,
    error_is_large,
    ranks_hung,
)
"""Of a sharded model, whose units wait neither for a worker nor for the last gradient."""

LEAST = 0.005
"""Share of the step's period below which a gain is not worth a sentence."""

SMALL = 0.03
"""Share of the step's period below which a gain is small; also where the median period may be off
by more than the gain."""

_MOST_NAMED = 3
"""Of a sharded model's collectives that had an anomaly."""


def findings(model: ModelFacts) -> list[Finding]:
    """Return what is to be said: hangs without an end, anomalies, wrong ones first, then gains.

    Hangs that went on stand before the gains: what they took was no step's, and may be more.
    """
    found = [
        _weighed(replace(one, rule=rule.__name__), model)
        for rule in (UNIT_RULES if model.is_sharded else RULES)
        for one in rule(model)
    ]
    least = LEAST * model.period.p50 if model.period is not None else 0.0
    found = [x for x in found if x.gain_ns is None or x.is_kept or x.gain_ns >= least]
    found.sort(key=lambda one: (one.severity is None, -(one.gain_ns or 0.0)))
    # Of stalls the rule says more than the ranks' own records, of which none sees the others.
    others = tuple(one for one in model.anomalies if one.kind != "stall")
    wrong = [one for one in found if one.is_wrong]
    return [*wrong, *anomaly_findings(others), *(one for one in found if not one.is_wrong)]


def _weighed(finding: Finding, model: ModelFacts) -> Finding:
    """Return the finding, said to be small where it is: nothing lossy is worth that."""
    if finding.gain_ns is None or finding.is_kept or finding.is_wrong or model.period is None:
        return finding
    least = max(SMALL * model.period.p50, model.period_noise_ns or 0.0)
    return finding if finding.gain_ns >= least else replace(finding, is_small=True, lossy_remedy="")


def anomaly_findings(anomalies: Sequence[AnomalyFacts]) -> list[Finding]:
    """Return a finding for each kind of anomaly; no time is to be gained by any."""
    found = [_anomaly(one) for one in anomalies]
    return sorted(found, key=lambda one: not one.is_wrong)


def _anomaly(one: AnomalyFacts) -> Finding:
    kind, first = anomaly_kind(one.kind), one.first
    bucket = first.bucket if first.bucket >= 0 else None
    where = f"step {first.step}"
    if bucket is not None:
        where += f", {f'bucket {bucket}' if one.unit is None else one.unit}"
    where += "" if first.rank is None else f", rank {first.rank}"
    evidence = [f"first at {where}: {first.message}"]
    if one.count > 1:
        evidence.append(f"seen on {named_ranks(one.ranks)}{_in(one)}")
    return Finding(
        rule=one.kind,
        bucket=bucket,
        rank=first.rank,
        steps=(first.step,),
        sentence=f"{kind.said(sharded=one.unit is not None).sentence}: first seen at {where}.",
        evidence=tuple(evidence),
        is_wrong=kind.gradients_wrong,
        severity=kind.severity,
    )


def _in(one: AnomalyFacts) -> str:
    """Return in which buckets, or units' collectives, anomalies were seen."""
    if not one.buckets:
        return ""
    where, each = f"bucket{'s' if len(one.buckets) > 1 else ''} {listed(one.buckets)}", "bucket"
    if one.units:
        more = len(one.units) - _MOST_NAMED
        where = ", ".join(map(str, one.units[:_MOST_NAMED]))
        where += f" and {more} more" if more > 0 else ""
        each = "of a unit's collectives"
    return f", in {where}; of each {each} a rank records the first"
