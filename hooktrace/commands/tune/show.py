"""A tuning in words: the settings, best first, one sentence, and the lines to write."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from statistics import NormalDist
from typing import NamedTuple

import msgspec
from rich.console import Console

from ...analysis.document.terminal import show
from ...analysis.document.tree import Code, Column, Heading, Items, Node, Table, Text
from ...hooks.catalogue import HookEntry, candidates
from ...integrations.tuning.hooks import SHARDED
from ...integrations.tuning.rounds import OWN
from ...records.units import megabytes, milliseconds
from ...tracing.options import BUCKET_CAP_MB, HOOK
from .measure import Found

_WIDTH = 100


class Setting(NamedTuple):
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
    peak_bytes: int | None


class Tuned(NamedTuple):
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


def as_json(tuned: Tuned) -> bytes:
    """Return it for programs."""
    rows = [{**one._asdict(), "found": one.found._asdict()} for one in tuned.settings]
    return msgspec.json.encode({**tuned._asdict(), "settings": rows, "says": sentence(tuned)})


def as_text(tuned: Tuned) -> str:
    """Return it for people."""
    console = Console(file=StringIO(), width=_WIDTH, highlight=False, markup=False)
    show(console, _document(tuned))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip()


def _document(tuned: Tuned) -> Iterator[Node]:
    cap = "" if tuned.own_cap is None else f", bucket_cap_mb={tuned.own_cap:g}"
    yield Text(
        f"{tuned.model} on {tuned.ranks} ranks, as it is: {milliseconds(tuned.step_ns)} ms a step, "
        f"{_own(tuned)}{cap}"
    )
    yield _table(tuned)
    yield Heading(sentence(tuned))
    yield Items(_remarks(tuned))
    best = winner(tuned)
    if best is not None:
        yield Heading("To use it")
        yield Code(_lines(best, tuned))


def _table(tuned: Tuned) -> Table:
    columns = {
        Column("hook", of="words"): [one.hook for one in tuned.settings],
        Column("cap"): ["-" if one.cap is None else f"{one.cap:g}" for one in tuned.settings],
        Column("step"): [milliseconds(one.found.step_ns) for one in tuned.settings],
        Column("against as it is", "against as it is: with its 95 % interval"): [
            _against(one.found) for one in tuned.settings
        ],
        Column("exposed"): [milliseconds(one.exposed_ns) for one in tuned.settings],
        Column("sent", "sent by a rank, in MB"): [
            megabytes(one.wire_bytes) for one in tuned.settings
        ],
        Column("error", "error: relative L2, the largest that was probed"): [
            "-" if one.error is None else f"{one.error:.2g}" for one in tuned.settings
        ],
        Column("memory", "memory: most in use, MiB"): [
            "-" if one.peak_bytes is None else f"{one.peak_bytes / 2**20:,.0f}"
            for one in tuned.settings
        ],
    }
    known = {column: cells for column, cells in columns.items() if set(cells) != {"-"}}
    rows = [*zip(*known.values(), strict=True)]
    return Table("Settings, fastest first", [*known], rows, "step and exposed in ms")


def _against(found: Found) -> str:
    middle, low, high = (100 * (x - 1) for x in (found.ratio, found.low, found.high))
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def winner(tuned: Tuned) -> Setting | None:
    """Return the shortest step, where it is shorter than the job's by more than the noise."""
    best = _best(tuned)
    return best if best and _beats_own(best, tuned) else None


def _beats_own(one: Setting, tuned: Tuned) -> bool:
    return not _is_own(one, tuned) and 1 - one.found.ratio > _noise(one, tuned)


def _best(tuned: Tuned) -> Setting | None:
    """Return the shortest step of what is another setting than the job's."""
    return next((one for one in tuned.settings if not _is_own(one, tuned)), None)


def _is_own(one: Setting, tuned: Tuned) -> bool:
    return one.hook == OWN and one.cap == tuned.own_cap


def _noise(one: Setting, tuned: Tuned) -> float:
    """Return what a setting's gain has to be above, a share of the step.

    The upper half of its interval, which is wider for being the best of many (Bonferroni); by how
    much the job as it is drifts; and what its own hook differs by in the place of itself, where
    nothing should.
    """
    wider = NormalDist().inv_cdf(1 - 0.025 / len(tuned.settings)) / NormalDist().inv_cdf(0.975)
    itself = (x.found.ratio - 1 for x in tuned.settings if _is_own(x, tuned))
    spread = (one.found.high - one.found.ratio) * wider
    return max(spread, abs((tuned.drift or 1.0) - 1), *(max(0.0, -shift) for shift in itself))


def _own(tuned: Tuned) -> str:
    return "no hook" if _has_none(tuned) else str(tuned.own_hook)


def _has_none(tuned: Tuned) -> bool:
    return tuned.own_hook in ("ddp_allreduce", "fully_shard")


def sentence(tuned: Tuned) -> str:
    """Return the one sentence."""
    won = winner(tuned)
    best = _best(tuned)
    if best is None:
        return "There was nothing to try beside the job as it is."
    if won is None:
        noise = 100 * _noise(best, tuned)
        return f"Nothing beats the job as it is by more than the noise ({noise:.1f} %)."
    gain, low, high = (100 * (1 - x) for x in (won.found.ratio, won.found.high, won.found.low))
    own = "The plain average" if _has_none(tuned) else "The hook that the job has"
    hook = own if won.hook == OWN else won.hook
    error = f", relative error {won.error:.1g}" if won.error else ""
    if won.error is None and won.hook not in _lossless(tuned):
        error = ", its error was not measured"
    return (
        f"{hook}{_at(won)}: steps {gain:.0f} % ({low:.0f} to {high:.0f}) shorter than the job's as "
        f"it is{error}."
    )


def _at(one: Setting) -> str:
    return "" if one.cap is None else f" at {one.cap:g} MB"


def _remarks(tuned: Tuned) -> list[str]:
    won, found, lossless = winner(tuned), [], _lossless(tuned)
    if won is not None and won.hook not in lossless:
        found.append(
            "It loses a part of the gradients. Whether the model learns as well was not tried: "
            "that takes a training to its end."
        )
        others = (one for one in tuned.settings if one.hook in lossless and _beats_own(one, tuned))
        if (other := next(others, None)) is not None:
            name = "the plain average" if other.hook == OWN else other.hook
            found.append(f"Nothing is lost by {name}{_at(other)}: {_against(other.found)}.")
    if won is not None and "powersgd" in won.hook:
        found.append(
            "PowerSGD was measured at work. It averages plainly before start_powerSGD_iter, 1,000 "
            "steps by default."
        )
    if tuned.drift is None:
        found.append("How far the job as it is drifts is not known: it ran once.")
    found += [f"{hook} was left out: {why}" for hook, why in tuned.refused.items()]
    found += tuned.notes
    return [*found, f"All files are in {tuned.folder}."]


def _lines(won: Setting, tuned: Tuned) -> list[str]:
    lines = []
    if won.hook in SHARDED:
        hook = SHARDED[won.hook].call
        return [f"hooktrace.fsdp.trace(model, reduce_scatter=hooktrace.fsdp.hooks.{hook})"]
    if won.cap is not None and won.cap != tuned.own_cap:
        lines.append(f"ddp = DistributedDataParallel(model, bucket_cap_mb={won.cap:g})")
    one = next((c for c in candidates() if c.name == won.hook), None)
    if one is not None:
        hook = f"hooktrace.hooks.{one.hook_name}"
        if one.hook_options:
            hook += f".bind({', '.join(f'{k}={v!r}' for k, v in one.hook_options.items())})"
        state = "None"
        if one.state_name is not None:
            said = "".join(f", {k}={v!r}" for k, v in one.state_options.items())
            state = f"hooktrace.hooks.{one.state_name}(None{said})"
        if not _has_none(tuned):
            lines.append(f"# in the place of {tuned.own_hook}, which the script registers:")
        lines.append(f"hooktrace.instrument(ddp, {hook}, {state})")
    if one is None or _has_none(tuned):
        lines.append(
            f"or, without a line, under Accelerate, Lightning and Trainer too: "
            f"{_settings(won, tuned, one)} with hooktrace run"
        )
    return lines


def _lossless(tuned: Tuned) -> set[str]:
    own = {OWN} if _has_none(tuned) else set()
    return {one.name for one in candidates() if one.kind == "lossless"} | own


def _settings(won: Setting, tuned: Tuned, hook: HookEntry | None) -> str:
    said = [] if hook is None else [f"{HOOK.variable}={hook.name}"]
    cap = [] if won.cap == tuned.own_cap else [f"{BUCKET_CAP_MB.variable}={won.cap:g}"]
    return " ".join(said + cap)
