"""A tuning in words: the settings, best first, one sentence, and the lines to write."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import msgspec

from ...analysis.document.tree import Code, Column, Heading, Items, Node, Table, Text
from ...integrations.tuning import CANDIDATES, OWN, SHARDED
from ...records.units import megabytes, milliseconds
from ...tracing.options import BUCKET_CAP_MB, HOOK
from .measure import Setting

_COLUMNS = [
    Column("hook", of="words"), Column("cap"), Column("step"),
    Column("against as it is", "against as it is: with its 95 % interval"), Column("exposed"),
    Column("sent", "sent by a rank, in MB"),
    Column("error", "error: relative L2, the largest that was checked"),
    Column("peak", "peak of the first rank's device, in MB, with the states of all hooks", rank=1),
]  # fmt: skip


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
        normal = NormalDist()
        wider = normal.inv_cdf(1 - 0.025 / len(self.settings)) / normal.inv_cdf(0.975)
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
    rows = [
        (
            one.hook, "-" if one.cap is None else f"{one.cap:g}",
            milliseconds(one.ratio * tuned.step_ns), _against(one), milliseconds(one.exposed_ns),
            megabytes(one.wire_bytes), "-" if one.error is None else f"{one.error:.2g}",
            megabytes(one.peak_bytes),
        )
        for one in tuned.settings
    ]  # fmt: skip
    yield Table("Settings, fastest first", _COLUMNS, rows, "step and exposed in ms")
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
    if not tuned.winners:
        return (
            f"With {tuned.name(best)} steps were {gain:.0f} % shorter in one start of the job; "
            "starts differ, and no second one of it was measured."
        )
    error = f"; relative error {best.error:.2g}" if best.error else ""
    if best.error is None and not tuned.is_lossless(best):
        error = "; its error was not measured"
    return (
        f"With {tuned.name(best)} steps are {gain:.0f} % ({low:.0f} to {high:.0f}) shorter than "
        f"those of the job as it is{error}."
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
