"""What differs between two runs, by how much, how far they can be compared, and what is doubtful.

Measures of both --compare_runs--> Comparison: differences, limits, doubts
a Series of both --difference--> Difference, with its interval, by run/bootstrap.py
Comparison.sentence: "fp16 is 11 % (9 to 13) faster than ...", of what is shown to differ alone
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import asdict

from ...records.hook_names import how_to_see
from ...records.units import mb, megabytes, milliseconds, ms, named_ranks, percent
from ..run.bootstrap import FEWEST_STEPS, MEAN, MEDIAN, MIDDLE_HALF, Series, draws_for, interval
from ..run.dense import known
from .measure import TITLES, Grouping, Measures, RunFacts, grouping, step_table

Unit = Literal["ns", "bytes", "share", "error"]
Verdict = Literal["differs", "same", "not shown", "unknown"]

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period_mean", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("communication", "communication time", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What ``a`` and ``b`` are, and ``difference``, b - a, from ``low`` to ``high`` (95 %).

    ``share``: of ``a``.  ``verdict``: *differs* where the interval does not hold 0, *same* where
    both are one constant, *unknown* for the reason ``why``, else *not shown* (to differ):
    for a reason only where the interval holds no 0, but the halves of a run differ by more.
    """

    a: float | None
    b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    verdict: Verdict
    why: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the two are shown to differ."""
        return self.verdict == "differs"

    @property
    def drifts(self) -> bool:
        """Whether they would be, if the halves of a run did not differ by more."""
        return self.verdict == "not shown" and self.why is not None

    @property
    def apart(self) -> float:
        """The difference in ns, 0 where it is not known."""
        return self.difference or 0.0


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """One number a step, the mean of its ranks, over the steps: of both runs.

    Among ``quantities`` the median (of ``period_mean`` the mean); of a stage the time with at least
    one bucket in it.  Among ``parts`` what a stage adds to the step time: means over the middle
    half of the steps, which add up.
    """

    key: str
    title: str
    unit: Unit = "ns"
    difference: Difference


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, the second against the first.

    ``unlike``: what else differs between the two set-ups.  ``doubts``: what makes it doubtful, and
    how far they are compared.  ``step``: the sum of ``parts``.
    """

    a: RunFacts
    b: RunFacts
    unlike: tuple[str, ...]
    doubts: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    step: Difference | None
    parts: tuple[Quantity, ...]

    @property
    def names(self) -> tuple[str, str]:
        """What sentences call the two: their hooks, or where these are equal, the runs."""
        a, b = self.a, self.b
        return (a.hook, b.hook) if a.hook != b.hook else (a.name, b.name)

    @property
    def sentence(self) -> str:
        """The whole in one sentence, and what gradients lose, or may, in a second."""
        return _of_step(self) + _lost(self)

    def quantity(self, key: str) -> Difference | None:
        """Return the difference of one quantity, by its key."""
        return next((one.difference for one in self.quantities if one.key == key), None)

    def content(self) -> dict[str, object]:
        """Return what ``hooktrace compare --json`` writes.

        Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing is known.
        """
        return {**asdict(self), "names": self.names, "sentence": self.sentence}


def compare_runs(a: Measures, b: Measures) -> Comparison:
    """Return the comparison of ``b`` with ``a``; intervals are of the steps of these two runs."""
    is_same, of = is_same_model(a.facts, b.facts), grouping(a, b)
    parts = _parts(a, b, of) if is_same else []
    return Comparison(
        a=a.facts,
        b=b.facts,
        unlike=tuple(unlike(a.facts, b.facts)),
        doubts=tuple(doubts(a.facts, b.facts)),
        quantities=tuple(_quantities(a, b, of, is_same)),
        step=parts[0].difference if parts else None,
        parts=tuple(parts[1:]),
    )


def _quantities(a: Measures, b: Measures, of: Grouping, is_same: bool) -> Iterator[Quantity]:
    kinds = of if is_same and "exposed" not in of else ()
    for key, title, unit, share in (
        *(_QUANTITIES if is_same else _QUANTITIES[:2]),
        *((kind, f"in {TITLES.get(kind, kind)}", "ns", MEDIAN) for kind in kinds),
    ):
        # A run that does not have a stage was in it for no time.
        name = key.removesuffix("_mean")
        values = [one.series.get(name, np.zeros_like(one.parts.period)) for one in (a, b)]
        found = difference(*(Series(one, one, share) for one in values))
        is_known = (found.a, found.b) != (None, None)  # else nothing was checked
        if (key != "error" or is_known) and (key not in kinds or found.a or found.b):
            yield Quantity(key=key, title=title, unit=unit, difference=found)


def _parts(a: Measures, b: Measures, of: Grouping) -> list[Quantity]:
    """Return the whole step first, then its parts, both of steps ordered by their time."""
    ours, theirs = (step_table(one, of) for one in (a, b))
    order = ours["period"], theirs["period"]
    return [
        Quantity(
            key=key,
            title=TITLES.get(key, key),
            difference=difference(
                Series(ours[key], order[0], MIDDLE_HALF), Series(theirs[key], order[1], MIDDLE_HALF)
            ),
        )
        for key in ours
        if key == "period" or ours[key].any() or theirs[key].any()
    ]


def difference(a: Series, b: Series) -> Difference:
    """Return the difference of a number of two runs.

    Its interval is about these two: how much another run of the same set-up would be off, on a
    machine that does other things beside, no number of steps can tell.
    """
    fewest, x, y = min(len(a.values), len(b.values)), a.estimate(), b.estimate()
    low = high = why = None
    verdict: Verdict = "unknown"
    if fewest and not np.ptp(a.values) and not np.ptp(b.values):
        x, y = float(a.values[0]), float(b.values[0])
        low = high = y - x
        verdict = "same" if x == y else "differs"
    elif fewest < FEWEST_STEPS:
        why = f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
        why = why if fewest else "one of the runs has no such number"
    else:
        draws = draws_for(max(len(a.values), len(b.values)))
        low, high = interval(*(one.resampled(i, draws=draws) for i, one in enumerate((a, b))))
        verdict = "not shown" if low <= 0 <= high else "differs"
        if verdict == "differs" and max(a.drift(), b.drift()) > abs(y - x):
            verdict = "not shown"
            why = "the halves of one run differ by more than the runs do"
    return Difference(
        a=known(x), b=known(y), difference=known(y - x), low=low, high=high,
        share=known((y - x) / x) if x else None, verdict=verdict, why=why,
    )  # fmt: skip


def is_same_model(a: RunFacts, b: RunFacts) -> bool:
    """Return whether both have as many gradients of the same shapes, as far as the files tell.

    Of sharded models each parameter counts once, however often it is communicated.  One that is
    sharded and one that is not have nothing in common but their steps.
    """
    if a.is_sharded != b.is_sharded:
        return False
    if a.shapes and b.shapes:
        return a.shapes == b.shapes
    return a.gradient_bytes == b.gradient_bytes


def _limits(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield how far two runs are compared, where not all of it can be."""
    alone = "step times are compared and nothing else"
    unknown = [one for one in (a, b) if one.split_unknown is not None]
    if a.is_sharded != b.is_sharded:
        ours, theirs = (a, b) if a.is_sharded else (b, a)
        yield (
            f"{ours.name} is sharded by fully_shard (FSDP2) and {theirs.name} is not: a unit is no "
            f"bucket, and exposed is not the same of both, so {alone}"
        )
    elif not is_same_model(a, b):
        yield (
            f"{a.model} of {mb(a.gradient_bytes)} and {b.model} of {mb(b.gradient_bytes)} of "
            f"gradients are not the same model, so {alone}"
        )
    elif unknown:
        yield (
            "wire is not split into straggler wait and transfer, because in "
            f"{unknown[0].name} {unknown[0].split_unknown}"
        )
    for hook in sorted({one.hook for one in (a, b) if one.is_plain}):
        yield (
            f"{hook} is a plain hook: its stages are not seen, so they are not compared; to see "
            f"them, {how_to_see(hook)}"
        )


def unlike(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield in what two set-ups differ, other than the hook.

    A sharded model has no buckets and no cap, to differ in from one that is not.
    """
    told = [dict(_set_up(one)) for one in (a, b)]
    for what, ours in told[0].items():
        theirs = told[1].get(what, ours)
        if ours != theirs:
            yield f"{what}: {ours or 'unknown'} in {a.name}, {theirs or 'unknown'} in {b.name}"


def _set_up(one: RunFacts) -> Iterator[tuple[str, str]]:
    options = ", ".join(f"{name}={value}" for name, value in one.hook_options)
    yield "options of the hook", options or "none known"
    cap = one.bucket_cap_bytes
    if not one.is_sharded:
        yield "bucket_cap_mb", "" if cap is None else f"{cap / 2**20:g}"
    yield "ranks", str(len(one.ranks))
    yield "sharded by FSDP2", "yes" if one.is_sharded else "no"
    yield one.noun, str(one.bucket_count)
    given = "what ranks give to collectives" if one.is_sharded else "gradients"
    yield given, mb(one.gradient_bytes)
    yield "hosts", ", ".join(one.hosts)
    yield "torch", one.torch_version
    yield "backend", one.backend
    yield "times of the", one.clock


def doubts(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield what speaks against taking the differences at their word, then what is not compared."""
    yield (
        "the intervals are of these two runs. Runs of one set-up differ among themselves too, by "
        "what else the machines do: compare two of them to see by how much"
    )
    if a.run_id and a.run_id == b.run_id and a.name == b.name:
        yield "both are the same run"
    for run in (a, b):
        said = [*run.missing, run.thin, run.several_kinds]
        if run.beside:
            said.append(
                f"{' and '.join(run.beside)} may communicate within the steps of {run.model}: what "
                "is outside of communication here then holds the collectives of other models"
            )
        yield from (f"{run.name}: {text}" for text in said if text is not None)
    yield from _limits(a, b)


MINUS = "\N{MINUS SIGN}"


def value(of: float | None, unit: Unit) -> str:
    """Return a number without its unit: ms, MB, a share in percent."""
    if of is None:
        return "unknown"
    if unit == "ns":
        return milliseconds(of)
    if unit == "bytes":
        return megabytes(of)
    return percent(of) if unit == "share" else f"{of:.3g}"


def signed(of: float | None, unit: Unit) -> str:
    """Return a difference with its sign, none of 0."""
    if of is None:
        return "-"
    sign = MINUS if of < 0 else "+" if of > 0 else ""
    return f"{sign}{value(abs(of), unit)}"


_OF_STEP = 0.1
"""Of the difference of the step time: the least that a part must be to be said."""

_MOST_PARTS = 3

_ROUNDING = 1e-6
"""Relative error of a sum of 32 bits, at most."""

_APART = 1.1
"""Times as large is another relative error."""


def _of_step(found: Comparison) -> str:
    step, (a, b) = found.quantity("period"), found.names
    if step is None or step.a is None or step.b is None:
        return f"Whether {b} is faster than {a} is unknown, because no step time of one is known."
    if step.verdict == "unknown":
        return (
            f"Whether {b} is faster than {a} is unknown, because {step.why}: {ms(step.b)} a step "
            f"against {ms(step.a)}."
        )
    among = "Between these two runs,"
    if step.verdict == "same":
        return f"{among} the step time is the same, {ms(step.a)}."
    if not step.differs:
        why = f", and {step.why}" if step.why else ""
        low, high = (signed(x, "ns") for x in (step.low, step.high))
        return (
            f"{among} the step time is not shown to differ: {ms(step.b)} with {b}, "
            f"{ms(step.a)} with {a} ({low} to {high} ms){why}."
        )
    how = "faster" if step.apart < 0 else "slower"
    ends = sorted(abs(x or 0.0) / step.a for x in (step.low, step.high))
    low, high = (percent(x).removesuffix(" %") for x in ends)
    return (
        f"{among} {b} is {percent(abs(step.share or 0.0))} ({low} to {high}) {how} than {a}"
        f"{_caveats(found, step)}{_largest_parts(found, step)}."
    )


def _caveats(found: Comparison, step: Difference) -> str:
    """Return what makes the step time's difference less than it seems."""
    mean, whole = found.quantity("period_mean"), found.step
    compute = next((one.difference for one in found.parts if one.key == "compute"), None)
    said = ""
    if mean is not None and not (mean.differs and mean.apart * step.apart > 0):
        said = " by the median step, not by the mean"
    if compute is not None and compute.differs and whole is not None and whole.apart:
        is_outside = compute.apart / whole.apart >= 1 / 2
        said += ", though mostly where a hook does nothing" if is_outside else ""
    return said


def _largest_parts(found: Comparison, step: Difference) -> str:
    if found.step is None:
        if found.a.is_sharded != found.b.is_sharded:
            return "; one is sharded, one is not, so nothing but their steps is compared"
        return "; they are not of the same model"
    least = _OF_STEP * abs(step.apart)
    parts = [p for p in found.parts if p.difference.differs and abs(p.difference.apart) >= least]
    parts.sort(key=lambda p: -abs(p.difference.apart))
    if not parts:
        return "; no stage is shown to account for it"
    told = ((signed(p.difference.apart, "ns"), _title(found, p)) for p in parts[:_MOST_PARTS])
    return ": " + ", ".join(f"{apart} ms {title}" for apart, title in told)


def _title(found: Comparison, part: Quantity) -> str:
    of_second = part.difference.apart > 0
    late_in_a, late_in_b = ({one.rank for one in run.late} for run in (found.a, found.b))
    late = late_in_b if of_second else late_in_a
    if part.key == "wait" and late:
        where = "both" if late_in_a == late_in_b else found.names[of_second]
        return f"of waiting for {named_ranks(late)}, late in {where}"
    return part.title if part.key == "compute" else f"of {part.title}"


def _lost(found: Comparison) -> str:
    """Return what hooks lose, also of a gather's parameters, in the steps that were checked."""
    error, sent = found.quantity("error"), found.quantity("wire_bytes")
    if error is None:
        hooks = {(one.hook, one.hook_options) for one in (found.a, found.b)}
        if len(hooks) == 1 or sent is None or not sent.differs:
            return ""
        return (
            " What the gradients lose is unknown, because no sampled check measured it; pass a "
            "smaller error_every."
        )
    both = [x for x in (error.a, error.b) if x is not None]
    is_alike = len(both) == 2 and max(both) < _APART * min(both)
    if is_alike or max(both, default=0.0) <= _ROUNDING:
        return ""
    a, b = (value(x, "error") for x in (error.a, error.b))
    return (
        f" Relative error in sampled steps: {b} with {found.names[1]}, {a} with {found.names[0]}."
    )
