"""The whole of a tuning: starts of a job within a time, and what they say, or as much as is known.

    as it is -> the model, its step --hooks--> all hooks take turns at its own bucket_cap_mb
      -> the best ones at other sizes, a start each -> as it is, once more, for what drifts

On several machines the same command is given on each.  Where no process is rank 0 the starts only
follow: what is asked of each comes from rank 0's machine, through torch's store.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from ...hooks.catalogue import candidates
from ...integrations.start import FOLDER
from ...integrations.tuning.models import SHARDED
from ...integrations.tuning.plan import FEWEST, LEFT_OUT, MEASURED, OWN, SURVIVORS, TURN, Plan
from ...records.errors import UsageError
from ...tracing.options import TUNING
from .job import run_job, why_of
from .measure import Floats, Seen, Start, against
from .show import Tuned, as_json, as_text

BEFORE = """\
hooktrace tune starts the command up to {starts} times, and once more for each hook that
fails, for --minutes {minutes:g} in all, and ends it each time. It trains for real: what the script
writes, it writes, checkpoints too. A script can ask for it: HOOKTRACE_TUNING is 1 then."""
HOOKS = {"DDP": [one.name for one in candidates()], "fully_shard": [*SHARDED]}
"""What can be tried, by what a model is under."""
CAPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""MB that are tried where they make another number of buckets, MOST_BUCKETS at most."""
MOST_BUCKETS = 100
SECONDS = 20.0
"""What a start takes at least, so that short steps are many."""
STARTING_S = 120.0
"""What a job may take to come to its first step."""


def tune(
    command: Sequence[str], *, minutes: float, steps: int, hooks: Sequence[str],
    caps: Sequence[float], out: Path | None, json_path: Path | None,
) -> int:  # fmt: skip
    """Tune a job; returns 0, or 1 where it was interrupted or a later start failed.

    Raises ``UsageError`` where nothing can be tuned, and why.
    """
    _check(hooks, [*chain(*HOOKS.values())])
    typer.echo(BEFORE.format(starts=3 + len(caps or CAPS), minutes=minutes), err=True)
    end_s, rounds = time.monotonic() + 60 * minutes, -(-steps // (TURN - LEFT_OUT))
    out = out or Path("runs", f"tune-{time.strftime('%Y%m%d-%H%M%S')}")
    tuning = Tuning(command, end_s, max(FEWEST, rounds), hooks, caps, out)
    # Also where a shell has started it in the background, and a job has to be ended.
    ends = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in ends]
    code = 1
    try:
        if not tuning.run():
            typer.echo("the machine of rank 0 says what was found")
            return 0
        code = 0
    except KeyboardInterrupt:
        tuning.notes.append("interrupted: this is what was known by then")
    except UsageError as error:
        if not tuning.turned:
            raise
        tuning.notes.append(f"Not all was tried: {error}")
    finally:
        for number, handler in zip(ends, before, strict=True):
            signal.signal(number, handler)
    tuned = tuning.tuned()
    typer.echo(as_text(tuned))
    if json_path is not None:
        json_path.write_bytes(as_json(tuned))
    return code


def _check(hooks: Sequence[str], known: Sequence[str], where: str = "") -> None:
    for one in hooks:
        if one not in known:
            raise UsageError(f"{one} is no hook{where}; choose from {', '.join(known)}")


def caps_of(size: int, own: float, asked: Sequence[float]) -> list[float]:
    """Return the limits to try for a model of so many bytes, the largest first.

    Those that are asked for, or that cut the gradients into another number of buckets.
    """
    buckets = {cap: -(-size // int(cap * 2**20)) for cap in (own, *CAPS)}
    first = {number: cap for cap, number in reversed(buckets.items()) if number <= MOST_BUCKETS}
    return sorted({*(asked or first.values())} - {own}, reverse=True)


@dataclass
class Tuning:
    """What is asked, and the starts that gave step times.

    ``end_s``: by the monotonic clock.  ``plain``: starts without hooks of ours, ``turned``: with
    turns.  ``notes``: sentences about what did not go as planned.
    """

    command: Sequence[str]
    end_s: float
    rounds: int
    hooks: Sequence[str]
    caps: Sequence[float]
    out: Path
    plain: list[Start] = field(default_factory=list)
    turned: list[Start] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _failed: dict[str, str] = field(default_factory=dict)
    _number: int = 0
    _startup_s: float = 0.0

    def run(self) -> bool:
        """Make the starts, as far as the time goes; returns whether rank 0 was here."""
        _say("the job as it is")
        start = self.start(limit_s=self._left() / 8)
        while start.ranks[0]["follows"]:
            if start.ranks[0]["last"]:
                return False
            _say("as rank 0's machine asks")
            start = self.start()
        self._keep(start, self.plain)
        first = start.ranks[0]
        hooks, cap = self._hooks_for(first), first["cap"]
        if not self._turns(hooks, cap, self._left() / 2):
            raise UsageError(
                f"a step takes {self._step_s():.2g} s, and {self._left() / 2:.0f} s, half of what "
                f"is left, are too few for {len(hooks)} of --hooks; ask for more --minutes or for "
                "fewer hooks"
            )
        best = self._survivors(self.turned[0].turns)
        last_s = _fewest(0) * self._step_s()
        for other in caps_of(first["bytes"], cap, self.caps) if cap else ():
            if not self._turns(best, other, self._left() - self._startup_s - last_s):
                self.notes.append(f"No time was left for bucket_cap_mb={other:g}: more --minutes.")
        _say("the job as it is, once more")
        self._keep(self.start(limit_s=max(last_s, self._left()), is_last=True), self.plain)
        return True

    def _survivors(self, turns: Mapping[str, Floats]) -> list[str]:
        ratio = {one: against(turns[one], turns[OWN], self._plain_steps())[1] for one in turns}
        return sorted(turns.keys() - {OWN}, key=ratio.__getitem__)[:SURVIVORS]

    def _left(self) -> float:
        return self.end_s - time.monotonic()

    def _plain_steps(self) -> list[Floats]:
        return [one.turns[OWN] for one in self.plain]

    def _step_s(self) -> float:
        return float(self._plain_steps()[-1].mean()) / 1e9

    def _hooks_for(self, first: Seen) -> Sequence[str]:
        if first["ranks"] < 2:
            raise UsageError("the job has one rank, which sends nothing; start it with two or more")
        known = HOOKS[first["kind"]]
        _check(self.hooks, known, f" for a model under {first['kind']}")
        if first["cap"] is None and self.caps:
            raise UsageError("a sharded model has no bucket_cap_mb; leave --caps out")
        return self.hooks or known

    def _turns(self, hooks: Sequence[str], cap: float | None, seconds: float) -> bool:
        """Have hooks take turns at a limit of bucket sizes, where that fits into the time.

        A hook that fails leaves the list, and the others are started again.
        """
        first, end = self.plain[0].ranks[0], time.monotonic() + seconds
        while True:
            hooks = [one for one in hooks if one not in self._failed]
            left = end - time.monotonic() - self._startup_s
            if _fewest(len(hooks)) * self._step_s() > left:
                return False
            where = "" if cap is None else f"bucket_cap_mb={cap:g}, "
            _say(f"{where}up to {self.rounds} rounds: {', '.join(hooks)}")
            changed = None if cap == first["cap"] else cap
            start = self.start(limit_s=left, model=first["number"], hooks=hooks, cap=changed)
            failed = {label: why for one in start.ranks for label, why in one["failed"].items()}
            if not failed:
                self._keep(start._replace(cap=cap), self.turned, len(hooks))
                return True
            self._failed |= failed
            _say(f"without {', '.join(failed)}, by which it failed")

    def _keep(self, start: Start, among: list[Start], hooks: int = 0) -> None:
        if min(map(len, start.turns.values()), default=0) < FEWEST:
            begins, turns = start.ranks[0]["begins"], start.ranks[0]["turns"]
            made = len(begins) - turns[0][1] if turns else 0
            raise UsageError(
                f"{start.trouble or 'The job ended.'} It made {made} steps that could be measured, "
                f"and {FEWEST} turns of each hook take {_fewest(hooks)}; pass a command that "
                "trains for longer, more --minutes, or other --hooks"
            )
        self.notes += filter(None, [start.trouble])
        among.append(start)

    def start(self, limit_s: float = 0.0, **more: Any) -> Start:
        """Start the job once; ``more``: of the plan.

        Raises ``UsageError`` where the job cannot be tuned, or no rank wrote anything.
        """
        number, token = self._number, os.urandom(4).hex()
        self._number += 1
        folder = (self.out / f"start{number}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        least_s = min(SECONDS, max(0.0, self._left() / 40))
        plan = Plan(str(folder / token), self.rounds, least_s, limit_s, **more)
        output, began = folder / f"output-{token}.txt", time.monotonic()
        # The job ends by itself, at its limit too; this is for one that hangs.
        deadline = max(STARTING_S, 2 * self._startup_s) + max(self._left(), 0.0)
        code = run_job(self.command, _environment(plan), output, deadline)
        took, why = time.monotonic() - began, why_of(output)
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        seen = [json.loads(one.read_bytes()) for one in folder.glob(f"{token}-*.json")]
        for one in seen:
            if "why_not" in one:
                raise UsageError(one["why_not"])
        if not seen:
            raise UsageError(
                f"the job {how}, and reported no model under DDP, or fully_shard, on all ranks: "
                f"{why} (all that it printed is in {output}); pass a command that trains one"
            )
        # Of a rank that was started again, or a model made again, what was seen for longest.
        seen.sort(key=lambda one: (one["bytes"], len(one["begins"]), one["number"]))
        by_rank = {one["rank"]: one for one in seen if one["bytes"] == seen[-1]["bytes"]}
        ranks = [by_rank[rank] for rank in sorted(by_rank)]
        begins = ranks[0]["begins"]
        self._startup_s = self._startup_s or max(0.0, took - (begins[-1] - begins[0]) / 1e9)
        return Start(folder, ranks, trouble="" if code == 0 else f"Start {number} {how}: {why}.")

    def tuned(self) -> Tuned:
        """Return what the starts say.  Raises ``UsageError`` where it is nothing."""
        if not self.turned:
            raise UsageError("nothing was measured: it was ended before the hooks had their turns")
        first, plain = self.turned[0], self._plain_steps()
        found = [one for start in self.turned for one in start.settings(plain)]
        seen, steps = first.ranks[0], [float(one.mean()) for one in plain]
        return Tuned(
            model=seen["model"], own_hook=seen["hook"], own_cap=first.cap, ranks=seen["ranks"],
            step_ns=found[0].step_ns / found[0].ratio,
            drift=steps[1] / steps[0] if len(steps) > 1 else None,
            settings=sorted(found, key=lambda one: one.ratio),
            refused={**seen["refused"], **self._failed}, notes=self.notes, folder=str(self.out),
        )  # fmt: skip


def _fewest(hooks: int) -> int:
    """Return how many steps a start of so many hooks, and the job's own, takes at least."""
    return TURN * (1 + FEWEST * (hooks + 1))


def _environment(plan: Plan) -> dict[str, str]:
    """Return this process's environment for a start, without what asks hooktrace for anything."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOOKTRACE_")}
    paths = [FOLDER, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {
        MEASURED: json.dumps(asdict(plan)),
        TUNING.variable: "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "HOOKTRACE_RECORD_DIR": "",  # nobody is to be told of a run
    }


def _say(what: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {what}", err=True)
