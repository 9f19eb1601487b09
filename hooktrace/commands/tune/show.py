"""A tuning in words: the settings, best first, one sentence, and the lines to write."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from statistics import NormalDist

import msgspec
from rich.console import Console

from ...analysis.document.terminal import show
from ...analysis.document.tree import Code, Column, Heading, Items, Node, Table, Text
from ...hooks.catalogue import candidates
from ...integrations.tuning.hooks import SHARDED
from ...integrations.tuning.plan import OWN
from ...records.units import megabytes, milliseconds
from ...tracing.options import BUCKET_CAP_MB, HOOK
from .measure import Found

_WIDTH = 100
_CANDIDATES = {one.name: one for one in candidates()}
_LOSSLESS = {name for name, one in _CANDIDATES.items() if one.kind == "lossless"}


class Setting(msgspec.Struct, frozen=True):
    """A hook and a limit of bucket sizes, of DDP, and what a step with them is like.

    ``exposed_ns``: the mean of the ranks' medians.  ``error``: relative L2, the largest of a
    bucket.
    """

    hook: str
    cap: float | None
    found: Found
    exposed_ns: float | None
    wire_bytes: float | None
    error: float | None

    @property
    def against(self) -> str:
        """Its step against that of the job as it is, in percent."""
        found = self.found
        middle, low, high = (100 * (x - 1) for x in (found.ratio, found.low, found.high))
        return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"

    def named(self, own: str) -> str:
        """Return what it is called in a sentence, where the job's hook is ``own``."""
        at = "" if self.cap is None else f" at {self.cap:g} MB"
        return f"{own if self.hook == OWN else self.hook}{at}"


class Tuned(msgspec.Struct, frozen=True):
    """All that a tuning has found, the shortest step first.

    ``step_ns``: of the job as it is, and ``drift`` its second start's over its first one's.
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
    def has_own_hook(self) -> bool:
        """Whether the script registers one."""
        return self.own_hook not in ("ddp_allreduce", "fully_shard")

    @property
    def best(self) -> Setting | None:
        """The shortest step of what is another setting than the job's."""
        return next((one for one in self.settings if not self.is_own(one)), None)

    @property
    def winner(self) -> Setting | None:
        """The shortest step, where it is shorter than the job's by more than the noise."""
        return self.best if self.best and self.beats_own(self.best) else None

    def is_own(self, one: Setting) -> bool:
        """Return whether a setting is the job's."""
        return one.hook == OWN and one.cap == self.own_cap

    def beats_own(self, one: Setting) -> bool:
        """Return whether a step is shorter than the job's by more than the noise."""
        return not self.is_own(one) and 1 - one.found.ratio > self.noise(one)

    def noise(self, one: Setting) -> float:
        """Return what a setting's gain has to be above, a share of the step.

        The upper half of its interval, which is wider for being the best of many (Bonferroni); by
        how much the job as it is drifts; and what its own hook differs by in the place of itself,
        where nothing should.
        """
        normal = NormalDist()
        wider = normal.inv_cdf(1 - 0.025 / len(self.settings)) / normal.inv_cdf(0.975)
        spread = (one.found.high - one.found.ratio) * wider
        itself = (1 - x.found.ratio for x in self.settings if self.is_own(x))
        return max(spread, abs((self.drift or 1.0) - 1), 0.0, *itself)

    def is_lossless(self, one: Setting) -> bool:
        """Return whether a setting loses nothing of the gradients."""
        return one.hook in _LOSSLESS or (one.hook == OWN and not self.has_own_hook)


def as_json(tuned: Tuned) -> bytes:
    """Return it for programs."""
    return msgspec.json.encode(msgspec.structs.asdict(tuned) | {"says": sentence(tuned)})


def as_text(tuned: Tuned) -> str:
    """Return it for people."""
    file = StringIO()
    show(Console(file=file, width=_WIDTH, highlight=False, markup=False), _document(tuned))
    return file.getvalue().rstrip()


def _document(tuned: Tuned) -> Iterator[Node]:
    own = tuned.own_hook if tuned.has_own_hook else "no hook"
    cap = "" if tuned.own_cap is None else f", bucket_cap_mb={tuned.own_cap:g}"
    yield Text(
        f"{tuned.model} on {tuned.ranks} ranks, as it is: {milliseconds(tuned.step_ns)} ms a step, "
        f"{own}{cap}"
    )
    yield _table(tuned.settings)
    yield Heading(sentence(tuned))
    yield Items(_remarks(tuned))
    if tuned.winner is not None:
        yield Heading("To use it")
        yield Code([*_lines(tuned.winner, tuned)])


def _table(settings: list[Setting]) -> Table:
    columns = {
        Column("hook", of="words"): [one.hook for one in settings],
        Column("cap"): ["-" if one.cap is None else f"{one.cap:g}" for one in settings],
        Column("step"): [milliseconds(one.found.step_ns) for one in settings],
        Column("against as it is", "against as it is: with its 95 % interval"): [
            one.against for one in settings
        ],
        Column("exposed"): [milliseconds(one.exposed_ns) for one in settings],
        Column("sent", "sent by a rank, in MB"): [megabytes(one.wire_bytes) for one in settings],
        Column("error", "error: relative L2, the largest that was probed"): [
            "-" if one.error is None else f"{one.error:.2g}" for one in settings
        ],
    }
    known = {column: cells for column, cells in columns.items() if set(cells) != {"-"}}
    rows = [*zip(*known.values(), strict=True)]
    return Table("Settings, fastest first", [*known], rows, "step and exposed in ms")


def sentence(tuned: Tuned) -> str:
    """Return the one sentence."""
    won, best = tuned.winner, tuned.best
    if best is None:
        return "There was nothing to try beside the job as it is."
    if won is None:
        noise = 100 * tuned.noise(best)
        return f"Nothing beats the job as it is by more than the noise ({noise:.1f} %)."
    gain, low, high = (100 * (1 - x) for x in (won.found.ratio, won.found.high, won.found.low))
    own = "The hook that the job has" if tuned.has_own_hook else "The plain average"
    error = f", relative error {won.error:.1g}" if won.error else ""
    if won.error is None and not tuned.is_lossless(won):
        error = ", its error was not measured"
    return (
        f"{won.named(own)}: steps {gain:.0f} % ({low:.0f} to {high:.0f}) shorter than the job's as "
        f"it is{error}."
    )


def _remarks(tuned: Tuned) -> list[str]:
    won, found = tuned.winner, []
    if won is not None and not tuned.is_lossless(won):
        found.append(
            "It loses a part of the gradients. Whether the model learns as well was not tried: "
            "that takes a training to its end."
        )
        found += [
            f"Nothing is lost by {one.named('the plain average')}: {one.against}."
            for one in tuned.settings
            if tuned.is_lossless(one) and tuned.beats_own(one)
        ][:1]
    if won is not None and "powersgd" in won.hook:
        found.append(
            "PowerSGD was measured at work. It averages plainly before start_powerSGD_iter, 1,000 "
            "steps by default."
        )
    if tuned.drift is None:
        found.append("How far the job as it is drifts is not known: it ran once.")
    found += [f"{hook} was left out: {why}" for hook, why in tuned.refused.items()]
    return [*found, *tuned.notes, f"All files are in {tuned.folder}."]


def _lines(won: Setting, tuned: Tuned) -> Iterator[str]:
    if won.hook in SHARDED:
        call = SHARDED[won.hook].call
        yield f"hooktrace.fsdp.trace(model, reduce_scatter=hooktrace.fsdp.hooks.{call})"
        return
    settings = []
    if won.hook != OWN:
        settings.append(f"{HOOK.variable}={won.hook}")
    if won.cap != tuned.own_cap:
        settings.append(f"{BUCKET_CAP_MB.variable}={won.cap:g}")
        yield f"ddp = DistributedDataParallel(model, bucket_cap_mb={won.cap:g})"
    if won.hook != OWN:
        if tuned.has_own_hook:
            yield f"# in the place of {tuned.own_hook}, which the script registers:"
        yield f"hooktrace.instrument(ddp, {_CANDIDATES[won.hook].call})"
    if won.hook == OWN or not tuned.has_own_hook:
        yield (
            "or, without a line, under Accelerate, Lightning and Trainer too: "
            f"{' '.join(settings)} with hooktrace run"
        )
