"""``hooktrace bench --whatif``: predictions held against runs that were then made.

    a network, a model --calibrated run, all-reduce at 25 MB--> predictions of all settings, advice
                       --the settings' own runs--> Place: cases, measured beside predicted
    places --whatif_scores.py--> how far predictions are off, what the advice is worth

Nothing of what is measured enters a prediction but the calibrated run of its network and model.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ...analysis.timeline import load
from ...analysis.whatif.advise import advise
from ...analysis.whatif.ask import ask, grid, read_source
from ...analysis.whatif.choice import Prediction
from ...analysis.whatif.compute_samples import around
from ...analysis.whatif.own_run import own_run
from ...records.files import find_records
from .harness import run_ranks
from .shaped_links import hosts
from .table import Row
from .whatif_runs import HOOKS, STACKS, Setting, Stack, run_all, runs_of
from .whatif_scores import Case, Place, scores

TODAY = ("allreduce", 25.0)
"""Hook and cap of the calibrated runs."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is run: all of ``hooks`` by ``caps_mb`` by ``models``, on each of ``networks``.

    ``networks``: Mbit/s of each link, ``None`` for loopback.  ``seconds``: for a setting's steps;
    ``calibrated_s``: for those of a calibrated run, which is one, and what all else is held to.
    """

    networks: tuple[float | None, ...] = (50.0, 200.0, 1000.0, None)
    caps_mb: tuple[float, ...] = (1.0, 5.0, 25.0)
    hooks: tuple[str, ...] = tuple(HOOKS)
    models: tuple[Stack, ...] = STACKS
    _: KW_ONLY
    ranks: int = 2
    seconds: float = 6.0
    calibrated_s: float = 20.0

    def calibrated(self, model: Stack) -> Setting:
        """Return the run of a model that is predicted from."""
        return Setting(model, *TODAY, self.calibrated_s, calibrate=True)

    @property
    def settings(self) -> list[Setting]:
        """What is run on each network: each model's calibrated run, and all of its settings."""
        found = []
        for model in self.models:
            found.append(self.calibrated(model))
            found += [
                Setting(model, hook, cap, self.seconds)
                for hook in self.hooks
                for cap in self.caps_mb
            ]
        return found


QUICK = Sweep((200.0, 1000.0, None), (1.0, 25.0), seconds=4.0)
FOUR_RANKS = Sweep((200.0,), (1.0, 25.0), ranks=4)


def whatif(*, quick: bool) -> Iterator[Row]:
    """Yield a row for each setting, and how far all of them are off.

    Raises ``UsageError`` where there can be no shaped links.
    """
    for sweep in (QUICK,) if quick else (Sweep(), FOUR_RANKS):
        yield from rows_of(sweep)


def rows_of(sweep: Sweep) -> Iterator[Row]:
    """Yield the rows of a sweep."""
    places: list[Place] = []
    for mbit_s in sweep.networks:
        with tempfile.TemporaryDirectory(prefix="hooktrace-whatif-") as root:
            found = places_of(sweep, mbit_s, root)
        yield from (case.row for place in found for case in place.cases)
        places += found
    yield from scores(places, f"{sweep.ranks} ranks")


def places_of(sweep: Sweep, mbit_s: float | None, root: str) -> list[Place]:
    """Run and predict all settings on one network; record files go below ``root``."""
    step_ms = measure(sweep, mbit_s, root)
    network = "loopback" if mbit_s is None else f"{mbit_s:g} Mbit/s"
    network = f"{sweep.ranks} ranks, {network}"
    return [_place(sweep, model, network, step_ms, root) for model in sweep.models]


def _place(
    sweep: Sweep, model: Stack, network: str, step_ms: dict[Setting, list[float]], root: str
) -> Place:
    calibrated = sweep.calibrated(model).directory(root)
    source = read_source(load(find_records(calibrated)), None)
    answer = ask(source, grid(source, sweep.hooks, sweep.caps_mb))
    found = {_setting(one): one for one in (answer.baseline, *answer.predictions)}
    compute = source.calibration.compute
    cases = [
        Case(
            network, model.name, one.hook, one.cap_mb, tuple(times), found[one.hook, one.cap_mb],
            slower_ms=_computing_ms(one, root) - (compute.end_ns + compute.rest_ns) / 1e6,
        )
        for one, times in step_ms.items()
        if one.model == model and not one.calibrate
    ]  # fmt: skip
    advised = tuple(_setting(line.prediction) for line in advise(answer).lines)
    return Place(tuple(cases), TODAY, advised)


def _computing_ms(setting: Setting, root: str) -> float:
    """Return what a step of a setting computes, hooks' work left out: the median of all its runs.

    ``around`` has it as it is predicted from: to the end of backward, and from a step's end on.
    """
    found = []
    for directory in runs_of(setting, root):
        timeline = load(find_records(directory))
        steps = around(own_run(timeline, timeline.models[0]).arrays)
        found.append((steps.end_ns + steps.rest_ns).ravel())
    return float(np.nanmedian(np.concatenate(found))) / 1e6


def _setting(one: Prediction) -> tuple[str, float]:
    hook, cap_mb = one.choice.hook, one.choice.bucket_cap_mb
    return (TODAY[0] if hook is None else hook, TODAY[1] if cap_mb is None else cap_mb)


def measure(sweep: Sweep, mbit_s: float | None, root: str) -> dict[Setting, list[float]]:
    """Return the ms of each settled step of each setting: of the rank in the middle."""
    with hosts(sweep.ranks) if mbit_s is not None else nullcontext() as made:
        if made is not None:
            made.limit(mbit_s)
        names = made.names if made is not None else ()
        of_ranks = run_ranks(
            sweep.ranks, run_all, sweep.settings, root, deadline_s=3600.0, hosts=names
        )
    return {
        one: [statistics.median(times) * 1e3 for times in zip(*of_rank, strict=True)]
        for one, *of_rank in zip(sweep.settings, *of_ranks, strict=True)
    }
