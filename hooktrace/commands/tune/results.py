"""What the starts of a job say of each hook, in numbers and in words.

a hook's turns / those of the job's own hook, round by round
... times the own hook's turns / steps of the job as it is --against--> a ratio, 95 % interval
record files of a hook --recorded--> exposed time, bytes, error
all that --settings--> Tuned --document--> a table, best first, one sentence, the lines to write
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import msgspec
import numpy as np

from ...analysis.document.tree import Code, Column, Heading, Items, Node, Table, Text
from ...analysis.run import load
from ...analysis.run.bootstrap import MIDDLE_HALF, Estimates, Series, ratio_interval
from ...analysis.run.dense import known_middle, settled_steps
from ...analysis.run.source import of_step
from ...integrations.tuning import CANDIDATES, OWN, SHARDED
from ...records.files import find_records
from ...records.units import megabytes, milliseconds
from ...tracing.options import BUCKET_CAP_MB, HOOK

Start = Mapping[str, Any]
"""What the first rank here of a start wrote (``integrations/tuning``), and its ``folder``."""
Times = Sequence[float]
"""Of the turns of one label in a start: the mean step of each, ns."""


class Setting(msgspec.Struct, frozen=True):
    """A hook and a limit of bucket sizes, of DDP, and what a step with them is like.

    ``ratio``: of the step over that of the job as it is, with the ends of its interval.
    ``exposed_ns``, ``wire_bytes``: medians.  ``error``: relative L2, the largest of a bucket.
    ``peak_bytes``: of the first rank's device memory, with the states of all hooks.
    ``starts``: of the job in which it had turns.
    """

    hook: str
    cap: float | None
    ratio: float
    low: float
    high: float
    exposed_ns: float | None = None
    wire_bytes: float | None = None
    error: float | None = None
    peak_bytes: int | None = None
    starts: int = 1


def settings(turned: Sequence[Start], plain: Sequence[Start]) -> list[Setting]:
    """Return each hook and limit once, the fastest first; ``plain``: starts without hooks of ours.

    Of more starts: their mean, and an interval that holds those of all, since starts differ by more
    than the turns of one show; what record files hold is of the first.
    """
    found, alone = [], [one["times"][OWN] for one in plain]
    for hook, cap in dict.fromkeys((hook, one["cap"]) for one in turned for hook in one["times"]):
        of_it = [one for one in turned if one["cap"] == cap and hook in one["times"]]
        told = [against(one["times"][hook], one["times"][OWN], alone) for one in of_it]
        ratios, lows, highs = zip(*told, strict=True)
        records = recorded(of_it[0]["folder"] / hook)
        peak = max(one["peaks"].get(hook, 0) for one in of_it) or None
        interval = fmean(ratios), min(lows), max(highs)
        found.append(Setting(hook, cap, *interval, *records, peak, len(of_it)))
    return sorted(found, key=lambda one: one.ratio)


def against(hook: Times, own: Times, plain: Iterable[Times]) -> tuple[float, float, float]:
    """Return a hook's step over the job's as it is, and the ends of its 95 % interval.

    ``hook``, ``own``: its turns and those of the job's hook, which are compared round by round, so
    that what drifts cancels.  ``plain``: of the starts, one or two, without hooks of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    ratios = [a / b for a, b in zip(hook, own, strict=False)]  # a round may not be ended
    paired, alone = _resampled(ratios, 0, length=1), _resampled(own, 1, length=1)
    found = Estimates(paired.found * alone.found, paired.drawn * alone.drawn, paired.blocks)
    bases = [_resampled(one, seed) for seed, one in enumerate(plain, 2)]
    base = Estimates(*(np.mean(parts, axis=0) for parts in zip(*bases, strict=True)))
    low, high = ratio_interval(base, found)
    return float(found.found / base.found), float(low), float(high)


def _resampled(times: Times, seed: int, length: int | None = None) -> Estimates:
    values = np.array(times)
    return Series(values, values, MIDDLE_HALF).resampled(seed, length=length)


def recorded(folder: Path) -> tuple[float | None, float | None, float | None]:
    """Return exposed time, ns, bytes and error, by the record files in a folder."""
    run = load(find_records(folder))
    steps = settled_steps(run, run.model_names[0]) if run.model_names else None
    if steps is None:
        return None, None, None
    error = max(map(max, steps.errors_by_step().values()), default=None)
    return known_middle(of_step(steps.exposed)), known_middle(steps.sent()), error


class Tuned(msgspec.Struct, frozen=True):
    """All that a tuning has found, the shortest step first.

    ``own_hook``: ``None`` where the script registers none.  ``step_ns``: of the job as it is, and
    ``drift`` its second start's over its first one's.  ``refused``: why hooks are left out.
    ``notes``: what did not go as planned.
    """

    model: str
    own_hook: str | None
    own_cap: float | None
    ranks: int
    step_ns: float
    drift: float | None
    settings: list[Setting]
    refused: dict[str, str]
    notes: list[str]
    folder: str

    @property
    def others(self) -> list[Setting]:
        """What is another setting than the job's."""
        return [one for one in self.settings if one.hook != OWN or one.cap != self.own_cap]

    @property
    def faster(self) -> list[Setting]:
        """What makes the step shorter than the job's by more than the noise."""
        able = (one for one in self.others if one.hook not in self.refused)
        return [one for one in able if 1 - one.ratio > self.noise(one)]

    @property
    def winners(self) -> list[Setting]:
        """What does so in two starts."""
        return [one for one in self.faster if one.starts > 1]

    def noise(self, one: Setting) -> float:
        """Return what a setting's gain has to be above, a share of the step.

        The upper half of its interval, which is wider for being the best of many (Bonferroni).  To
        that comes by what a whole start may be off: how much the job as it is drifts, or what its
        own hook gains in the place of itself, where nothing should.
        """
        wider = NormalDist().inv_cdf(1 - 0.025 / len(self.settings)) / NormalDist().inv_cdf(0.975)
        itself = (1 - one.ratio for one in self.settings if one not in self.others)
        return (one.high - one.ratio) * wider + max(abs((self.drift or 1.0) - 1), 0.0, *itself)

    def is_lossless(self, one: Setting) -> bool:
        """Return whether a setting loses nothing of the gradients."""
        if one.hook == OWN:
            return self.own_hook is None
        return one.hook in CANDIDATES and CANDIDATES[one.hook].kind == "lossless"

    def name(self, one: Setting) -> str:
        """Return how a setting is called in sentences."""
        hook = "the hook that the job has" if self.own_hook else "the plain average"
        at = "" if one.cap is None else f" at {one.cap:g} MB"
        return f"{hook if one.hook == OWN else one.hook}{at}"


def document(tuned: Tuned) -> Iterator[Node]:
    """Yield it for people."""
    cap = "" if tuned.own_cap is None else f", bucket_cap_mb={tuned.own_cap:g}"
    yield Text(
        f"{tuned.model} on {tuned.ranks} ranks, as it is: {milliseconds(tuned.step_ns)} ms a step, "
        f"{tuned.own_hook or 'no hook'}{cap}"
    )
    error = "error: relative L2, the largest that was checked"
    peak = "peak of the first rank's device, in MB, with the states of all hooks"
    columns: dict[Column, Callable[[Setting], str]] = {
        Column("hook", of="words"): lambda one: one.hook,
        Column("cap"): lambda one: "-" if one.cap is None else f"{one.cap:g}",
        Column("step"): lambda one: milliseconds(one.ratio * tuned.step_ns),
        Column("against as it is", "against as it is: with its 95 % interval"): _against,
        Column("exposed"): lambda one: milliseconds(one.exposed_ns),
        Column("sent", "sent by a rank, in MB"): lambda one: megabytes(one.wire_bytes),
        Column("error", error): lambda one: "-" if one.error is None else f"{one.error:.2g}",
        Column("peak", peak, rank=1): lambda one: megabytes(one.peak_bytes),
    }
    rows = [[text(one) for text in columns.values()] for one in tuned.settings]
    yield Table("Settings, fastest first", [*columns], rows, "step and exposed in ms")
    yield Heading(sentence(tuned))
    yield Items([*_remarks(tuned), *tuned.notes, f"All files are in {tuned.folder}."])
    if tuned.winners:
        yield Heading("To use it")
        yield Code([*_lines(tuned.winners[0], tuned)])


def _against(one: Setting) -> str:
    middle, low, high = (100 * (x - 1) for x in (one.ratio, one.low, one.high))
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def sentence(tuned: Tuned) -> str:
    """Return the one sentence."""
    if not tuned.others:
        return "There was nothing to try beside the job as it is."
    if not tuned.faster:
        noise = 100 * tuned.noise(tuned.others[0])
        return f"Nothing beats the job as it is by more than the noise ({noise:.1f} %)."
    best = (tuned.winners or tuned.faster)[0]
    gain, low, high = (100 * (1 - x) for x in (best.ratio, best.high, best.low))
    once = "" if tuned.winners else ", in one start; starts differ, and no second one was measured"
    error = f"; relative error {best.error:.2g}" if best.error else ""
    if best.error is None and not tuned.is_lossless(best):
        error = "; its error was not measured"
    return (
        f"With {tuned.name(best)} steps are {gain:.0f} % ({low:.0f} to {high:.0f}) shorter than "
        f"those of the job as it is{once}{error}."
    )


def _remarks(tuned: Tuned) -> Iterator[str]:
    winners = tuned.winners
    if winners and not tuned.is_lossless(winners[0]):
        yield (
            "It loses a part of the gradients. Whether the model learns as well was not tried: "
            "that takes a training to its end."
        )
        for one in [one for one in winners if tuned.is_lossless(one)][:1]:
            yield f"Nothing is lost with {tuned.name(one)}: {_against(one)}."
    if winners and winners[0] != tuned.faster[0]:
        yield f"{tuned.name(tuned.faster[0])} was faster in one start, and has no second one."
    if tuned.drift is None:
        yield "How far the job as it is drifts is not known: it ran once."
    for hook, why in tuned.refused.items():
        yield f"{hook} was left out: {why}"


def _lines(won: Setting, tuned: Tuned) -> Iterator[str]:
    if won.hook in SHARDED:
        call = SHARDED[won.hook].call
        yield f"hooktrace.fsdp.trace(model, reduce_scatter=hooktrace.fsdp.hooks.{call})"
        return
    variables = []
    if won.cap != tuned.own_cap:
        variables.append(f"{BUCKET_CAP_MB.variable}={won.cap:g}")
        no_list = "" if tuned.own_cap else "  # and no bucket_cap_mb_list"
        yield f"ddp = DistributedDataParallel(model, bucket_cap_mb={won.cap:g}){no_list}"
    if won.hook != OWN:
        variables.append(f"{HOOK.variable}={won.hook}")
        if tuned.own_hook:
            yield f"# in the place of {tuned.own_hook}, which the script registers:"
        if CANDIDATES[won.hook].kind == "low-rank":
            yield "# averages plainly before start_powerSGD_iter, 1,000 steps by default:"
        yield f"hooktrace.instrument(ddp, {CANDIDATES[won.hook].call})"
    if won.hook == OWN or not tuned.own_hook:
        yield (
            "or, without a line, under Accelerate, Lightning and Trainer too: "
            f"{' '.join(variables)} with hooktrace run"
        )
