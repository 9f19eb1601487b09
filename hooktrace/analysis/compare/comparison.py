"""What differs between two runs, by how much, how far they can be compared, and what is doubtful.

Measures of both --compare_runs--> Comparison: differences, limits, doubts, one sentence
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import asdict

from ...records.hook_names import how_to_see
from ...records.units import mb
from ..run.bootstrap import MEAN, MEDIAN, MIDDLE_HALF
from ..run.parts import break_even
from . import sentence
from .difference import Difference, Series, difference
from .measure import TITLES, Grouping, Measures, RunFacts, grouping, step_table

Unit = Literal["ns", "bytes", "share", "error"]

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period_mean", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("communication", "communication time", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


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
        """The whole in one sentence."""
        return sentence.sentence(self)

    @property
    def pays_below_bytes_per_second(self) -> float | None:
        """The bandwidth above which the second run's hook costs more than it saves.

        Bytes sent less over what compress and decompress add by parts; ``None`` where it sends no
        less, adds no time, or is of one rank, which has no link.
        """
        sent, added = self.quantity("wire_bytes"), [self.part("compress"), self.part("decompress")]
        if sent is None or 1 in (self.a.world_size, self.b.world_size):
            return None
        return break_even(-sent.apart, sum(one.apart for one in added if one is not None))

    def quantity(self, key: str) -> Difference | None:
        """Return the difference of one quantity, by its key."""
        return next((one.difference for one in self.quantities if one.key == key), None)

    def part(self, key: str) -> Difference | None:
        """Return what a part adds to the step's difference, by its key."""
        return next((one.difference for one in self.parts if one.key == key), None)

    def content(self) -> dict[str, object]:
        """Return what ``hooktrace compare --json`` writes.

        Times are ns, sizes bytes, shares from 0 to 1; ``None`` where nothing is known.
        """
        worked_out = ("names", "sentence", "pays_below_bytes_per_second")
        return {**asdict(self), **{name: getattr(self, name) for name in worked_out}}


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
    yield one.noun, f"{one.bucket_count} of up to {mb(one.largest_bytes)}"
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
