"""The whole of a tuning: starts of a job within a time, and what they say, or as much as is known.

    as it is -> the model, its step --hooks--> all hooks take turns at its own bucket_cap_mb
      -> the best ones at other sizes, a start each -> the start of the fastest, once more
      -> as it is, once more, for what drifts

On several machines the same command is given on each.  Where no process is rank 0 the starts only
follow: what is asked of each comes from rank 0's machine, through torch's store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
import typer
from rich.console import Console

from ...analysis.document.output import json_text
from ...analysis.document.terminal import show
from ...integrations.ending import MEASURED
from ...integrations.start import FOLDER
from ...integrations.tuning import FEWEST, HOOKS, LEFT_OUT, OWN, SURVIVORS, TURN, WHERE, Plan
from ...records.errors import UsageError
from ...tracing.options import TUNING
from .job import run_job, why_of
from .results import Start, Tuned, document, sentence, settings

BEFORE = """\
hooktrace tune starts the command up to {starts} times, and once more for each hook that
fails, for --minutes {minutes:g} in all, and ends it each time. It trains for real: what the script
writes, it writes, checkpoints too. A script can ask for it: HOOKTRACE_TUNING is 1 then."""
CAPS, MOST_BUCKETS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0), 100
"""MB that are tried where they make another number of buckets, and no more than that."""
AGAIN = 2
"""How often the start of the fastest is made once more, if another one is the fastest then."""
SECONDS, STARTING_S = 20.0, 300.0
"""What a start trains for at least, so that short steps are many; what it may take before."""
WIDTH = 100
"""Of what is printed: names of hooks are not cut."""


def tune(
    command: Sequence[str], *, minutes: float, steps: int, hooks: Sequence[str],
    caps: Sequence[float], out: Path | None, json_path: Path | None,
) -> int:  # fmt: skip
    """Tune a job; returns 0, or 1 where it was interrupted, or its last start failed.

    Raises ``UsageError`` where nothing can be tuned, and why; ``Exit`` where rank 0 is elsewhere.
    """
    _check(hooks, [*HOOKS["DDP"], *HOOKS["fully_shard"]])
    typer.echo(BEFORE.format(starts=3 + AGAIN + len(caps or CAPS), minutes=minutes), err=True)
    rounds = max(FEWEST, -(-steps // (TURN - LEFT_OUT)))
    out = out or Path("runs", f"tune-{time.strftime('%Y%m%d-%H%M%S')}")
    tuning = Tuning(command, time.monotonic() + 60 * minutes, rounds, hooks, caps, out)
    try:
        tuning.run()
    except KeyboardInterrupt:
        tuning.notes.append("interrupted: this is what was known by then")
    tuned = tuning.tuned()
    show(Console(width=WIDTH, highlight=False, markup=False), document(tuned))
    if json_path is not None:
        told = {"says": sentence(tuned), "best": next(iter(tuned.winners), None)}
        json_path.write_text(json_text(msgspec.structs.asdict(tuned) | told), "utf-8")
    return int(tuned.drift is None)  # the second start as it is ends the tuning


def _check(hooks: Iterable[str], known: Collection[str], where: str = "") -> None:
    for one in hooks:
        if one not in known:
            raise UsageError(f"{one} is no hook{where}; choose from {', '.join(known)}")


def caps_of(sizes: Sequence[int], own: float | None) -> list[float]:
    """Return the limits to try for parameters of so many bytes, the largest first.

    Each cuts the gradients in another way, and none in very many buckets.  ``own``: the job's
    limit, ``None`` where it gave a list of them.
    """
    found = {tuple(_buckets(sizes, cap)): cap for cap in reversed(CAPS)}
    if own is not None:
        found.pop(tuple(_buckets(sizes, own)), None)
    return [cap for buckets, cap in found.items() if len(buckets) <= MOST_BUCKETS]


def _buckets(sizes: Sequence[int], cap: float) -> list[int]:
    """Return the bytes of the buckets that DDP makes of parameters; ``cap`` in MB."""
    buckets = [0]
    for size in reversed(sizes):
        if buckets[-1] >= cap * 2**20:
            buckets.append(0)
        buckets[-1] += size
    return buckets


@dataclass
class Tuning:
    """What is asked, and the starts that gave step times.

    ``end_s``: by the monotonic clock.  ``plain``: starts without hooks of ours, ``turned``: with
    turns.  ``refused``: why hooks are left out.  ``notes``: what did not go as planned.
    """

    command: Sequence[str]
    end_s: float
    rounds: int
    hooks: Sequence[str]
    caps: Sequence[float]
    out: Path
    plain: list[Start] = field(default_factory=list)
    turned: list[Start] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _starts: int = 0

    def run(self) -> None:
        """Make the starts, as far as the time goes.  Raises as ``measure`` does."""
        self.measure(self.plain, (), self._left() / 8)
        kind, own, sizes = (self.plain[0][key] for key in ("kind", "cap", "sizes"))
        step_s = median(self.plain[0]["times"][OWN]) / 1e9
        _check(self.hooks, HOOKS[kind], f" for a model under {kind}")
        hooks = self.hooks or HOOKS[kind]
        needed_s = step_s * TURN * FEWEST * (len(hooks) + 1)
        if needed_s > self._left() / 2:
            raise UsageError(
                f"a step takes {step_s:.2g} s, so {FEWEST} turns of each hook take {needed_s:.0f} "
                "s, more than half of what is left of --minutes; pass more, or fewer --hooks"
            )
        self.measure(self.turned, hooks, self._left() / 2)
        best = [one.hook for one in self.tuned().settings if one.hook != OWN][:SURVIVORS]
        caps = list[float]()
        if kind == "DDP":
            caps = sorted({*self.caps} - {own}, reverse=True) if self.caps else caps_of(sizes, own)
        elif self.caps:
            self.notes.append("--caps had no effect: a sharded model has no bucket_cap_mb.")
        for done, cap in enumerate(caps):
            # As long as what comes after it: the fastest once more, and the job as it is.
            self.measure(self.turned, best, self._left() / (len(caps) - done + 2), cap=cap)
        for _ in range(AGAIN):
            fastest = next(iter(self.tuned().faster), None)
            if fastest is None or fastest.starts > 1 or self._left() < SECONDS:
                break
            again = None if fastest.cap == own else fastest.cap
            self.measure(self.turned, {*best, fastest.hook}, self._left() / 2, cap=again)
        least = max(SECONDS, step_s * TURN * (FEWEST + 2))
        self.measure(self.plain, (), max(self._left(), least), is_last=True)

    def _left(self) -> float:
        return self.end_s - time.monotonic()

    def measure(self, of: list[Start], hooks: Iterable[str], seconds: float, **more: Any) -> None:
        """Add a start to ``plain``, or one to ``turned`` in which hooks take turns.

        Again without a hook in whose turn the job failed.  ``more``: of the plan.  Raises
        ``UsageError`` where it fails, and no start with turns was measured before; ``Exit`` where
        rank 0 is elsewhere, at the end.
        """
        end_s, least_s = time.monotonic() + seconds, min(SECONDS, max(0.0, self._left() / 40))
        if of is self.turned:
            more["model"] = self.plain[0]["number"]
        try:
            while True:
                asked = [one for one in hooks if one not in {OWN, *self.refused}]
                limit_s = end_s - time.monotonic()
                start = self._start(Plan(self.rounds, least_s, limit_s, hooks=asked, **more))
                trouble, label = start["trouble"], start["turns"][-1]
                self.refused |= start["refused"]
                if min(map(len, start["times"].values()), default=0) >= FEWEST:
                    break
                if not trouble or label == OWN:
                    raise UsageError(
                        f"{trouble or 'The job ended.'} It made fewer than {FEWEST} turns of "
                        f"{TURN} steps for each hook; pass a command that trains for longer, more "
                        "--minutes, or other --hooks"
                    )
                self.refused[label] = f"the job failed in its turn. {trouble}"
        except UsageError as error:
            if not self.turned:
                raise
            self.notes.append(f"Start {self._starts - 1} was not measured: {error}")
        else:
            of.append(start)
            self.notes += filter(None, [trouble])

    def _start(self, plan: Plan) -> Start:
        """Start the job, and where rank 0 is elsewhere again, until that says that it is over.

        Raises ``UsageError`` where the job cannot be tuned, or no rank wrote anything; ``Exit``
        where rank 0 is elsewhere, at the end.
        """
        number, token = self._starts, os.urandom(4).hex()
        self._starts += 1
        at = [] if plan.cap is None else [f"bucket_cap_mb={plan.cap:g}"]
        what = filter(None, [f"start {number}", ", ".join([*plan.hooks, *at])])
        typer.echo(f"{time.strftime('%H:%M:%S')} {': '.join(what)}", err=True)
        folder = (self.out / f"start{number}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        output = folder / f"output-{token}.txt"
        # The job ends by itself, at its limit too; this is for one that hangs.
        deadline = STARTING_S + max(self._left(), plan.limit_s, 0.0)
        code = run_job(self.command, _environment(plan, str(folder / token)), output, deadline)
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        why, where = why_of(output), f"(all that it printed is in {output})"
        ranks = sorted(folder.glob(f"{token}-*.json"))
        found: list[dict[str, Any]] = [msgspec.json.decode(path.read_bytes()) for path in ranks]
        for one in found:
            if "why_not" in one:
                raise UsageError(f"{one['why_not']} {where}")
        if not found:
            raise UsageError(
                f"the job {how}, and reported no model under DDP, or fully_shard, on all ranks: "
                f"{why} {where}; pass a command that trains one"
            )
        if found[0]["rank"] != 0:
            if found[0]["last"]:
                typer.echo("the machine of rank 0 says what was found")
                raise typer.Exit
            return self._start(plan)
        trouble = "" if code == 0 else f"Start {number} {how}: {why}."
        return found[0] | {"folder": folder, "trouble": trouble}

    def tuned(self) -> Tuned:
        """Return what the starts say.  Raises ``UsageError`` where it is nothing."""
        if not self.turned:
            raise UsageError("nothing was measured: it was ended before the hooks had their turns")
        said, steps_ns = self.turned[0], [median(one["times"][OWN]) for one in self.plain]
        return Tuned(
            model=said["model"], own_hook=said["hook"], own_cap=said["cap"], ranks=said["ranks"],
            step_ns=fmean(steps_ns), drift=steps_ns[1] / steps_ns[0] if steps_ns[1:] else None,
            settings=settings(self.turned, self.plain),
            refused=self.refused, notes=self.notes, folder=str(self.out),
        )  # fmt: skip


def _environment(plan: Plan, where: str) -> dict[str, str]:
    """Return this process's environment for a start, without what asks hooktrace for anything."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOOKTRACE_")}
    return kept | {
        MEASURED: msgspec.json.encode(plan).decode(),
        WHERE: where,
        TUNING.variable: "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [FOLDER, kept.get("PYTHONPATH")])),
        "HOOKTRACE_RECORD_DIR": "",  # nobody is to be told of a run
    }
