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
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ...hooks.catalogue import candidates
from ...integrations.start import FOLDER
from ...integrations.tuning.hooks import SHARDED
from ...integrations.tuning.plan import FEWEST, LEFT_OUT, MEASURED, OWN, SURVIVORS, TURN, Plan
from ...records.errors import UsageError
from ...tracing.options import TUNING
from .job import run_job, why_of
from .measure import Floats, Seen, against, turns_of, within
from .show import Setting, Tuned, as_json, as_text

BEFORE = """\
hooktrace tune starts the command up to {starts} times, for --minutes {minutes:g} in all, and
ends it each time. It trains for real: what the script writes, it writes, checkpoints too. A script
can ask for it: HOOKTRACE_TUNING is 1 then."""
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
    _check(hooks, [*chain(*HOOKS.values())], "no hook is called {}")
    if not command:
        raise UsageError(
            "pass after -- the command that starts the job, as hooktrace tune -- torchrun "
            "--nproc-per-node 2 train.py"
        )
    starts = 3 + len(caps or CAPS[1:])
    typer.echo(BEFORE.format(starts=starts, minutes=minutes), err=True)
    tuning = Tuning(command, 60 * minutes, steps=steps, hooks=hooks, caps=caps, out=out)
    # Whoever sends them does not know of the job, which has to be ended.
    ends = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _terminated}
    before = {number: signal.signal(number, handler) for number, handler in ends.items()}
    code = 1
    try:
        if not tuning.run():
            typer.echo("the machine of rank 0 says what was found")
            return 0
        code = 0
    except KeyboardInterrupt:
        tuning.notes.append("interrupted: this is what was known by then")
    except UsageError as error:
        if not tuning.by_cap:
            raise
        tuning.notes.append(f"Not all was tried: {error}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    tuned = tuning.tuned()
    typer.echo(as_text(tuned))
    if json_path is not None:
        json_path.write_bytes(as_json(tuned))
    return code


def _terminated(number: int, _: object) -> None:
    sys.exit(128 + number)


def _check(hooks: Sequence[str], known: Sequence[str], wrong: str) -> None:
    for one in hooks:
        if one not in known:
            raise UsageError(f"{wrong.format(one)}; choose from {', '.join(known)}")


def caps_of(size: int, own: float, asked: Sequence[float]) -> list[float]:
    """Return the limits to try for a model of so many bytes: what is asked, or what differs.

    Two limits that cut the gradients into as many buckets are one.
    """
    if asked:
        return [cap for cap in asked if cap != own]
    buckets = {cap: -(-size // int(cap * 2**20)) for cap in (own, *CAPS)}
    first = {count: cap for cap, count in reversed(buckets.items())}
    return [
        cap for cap in CAPS if cap == first[buckets[cap]] != own and buckets[cap] <= MOST_BUCKETS
    ]


class Tuning:
    """The starts that were made, and what they gave so far.

    ``by_cap``: what the ranks here wrote of the largest model, of the start at each limit of bucket
    sizes.  ``notes``: sentences about what did not go as planned.
    """

    def __init__(
        self, command: Sequence[str], seconds: float, *, steps: int, hooks: Sequence[str],
        caps: Sequence[float], out: Path | None,
    ) -> None:  # fmt: skip
        self._command, self._asked, self._caps = command, hooks, caps
        self._rounds = max(FEWEST, -(-steps // (TURN - LEFT_OUT)))
        self._end, self._keep = time.monotonic() + seconds, out is not None
        self._out = out or Path("runs", f"tune-{time.strftime('%Y%m%d-%H%M%S')}")
        self._starts, self._startup_s, self._step_s = 0, 0.0, 0.0
        self._first: Seen = {}
        self._plain: list[Floats] = []
        self._failed: dict[str, str] = {}
        self._trouble: str | None = None
        """Why the last start ended before its plan did."""
        self.by_cap: dict[float | None, list[Seen]] = {}
        self.notes: list[str] = []

    def run(self) -> bool:
        """Make the starts, as far as the time goes; returns whether rank 0 was here."""
        _say("the job as it is")
        ranks = self.start(limit_s=self._left() / 8)
        if ranks[0]["follows"]:
            while not ranks[0]["last"]:
                _say("as rank 0's machine asks")
                ranks = self.start()
            return False
        self._as_it_is(ranks)
        first = self._first = ranks[0]
        hooks = self._hooks_for(first)
        if not self._turns(hooks, first["cap"], self._left() / 2):
            raise UsageError(
                f"a step takes {self._step_s:.2g} s, and {self._left() / 2:.0f} s, half of what is "
                f"left, are too few for {len(hooks)} of --hooks; ask for more --minutes or for "
                "fewer hooks"
            )
        last_s = self._least_s(0)
        if first["cap"] is not None:
            best = self._survivors(first["cap"])
            caps = caps_of(first["bytes"], first["cap"], self._caps)
            for cap in sorted(caps, reverse=True):
                if not self._turns(best, cap, self._left() - self._startup_s - last_s):
                    self.notes.append(
                        f"No time was left for bucket_cap_mb={cap:g}: more --minutes."
                    )
        _say("the job as it is, once more")
        self._as_it_is(self.start(limit_s=max(last_s, self._left()), is_last=True))
        return True

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _least_s(self, hooks: int) -> float:
        """Return how long a start of so many hooks, and the job's own, takes at least."""
        return TURN * (1 + FEWEST * (hooks + 1)) * self._step_s

    def _hooks_for(self, first: Seen) -> Sequence[str]:
        if first["ranks"] < 2:
            raise UsageError("the job has one rank, which sends nothing; start it with two or more")
        known = HOOKS[first["kind"]]
        _check(self._asked, known, f"{{}} is no hook for a model under {first['kind']}")
        if first["cap"] is None and self._caps:
            raise UsageError("a sharded model has no bucket_cap_mb; leave --caps out")
        return self._asked or known

    def _survivors(self, cap: float | None) -> list[str]:
        """Return the hooks that go on to other sizes: those with the shortest steps."""
        turns = turns_of(self.by_cap[cap])
        return sorted(turns.keys() - {OWN}, key=lambda label: within(turns, label))[:SURVIVORS]

    def _as_it_is(self, ranks: list[Seen]) -> None:
        """Keep what a start without hooks of ours gave, a step's time in each turn, ns."""
        found = turns_of(ranks).get(OWN, np.zeros(0))
        if len(found) < FEWEST:
            raise UsageError(
                f"the job ended after {len(ranks[0]['begins'])} steps, too few to tell anything; "
                "pass a command that trains for longer, or more --minutes"
            )
        self._step_s = float(found.mean()) / 1e9
        self._plain.append(found)
        self._note_trouble()

    def _turns(self, hooks: Sequence[str], cap: float | None, seconds: float) -> bool:
        """Have hooks take turns at a limit of bucket sizes, where that fits into the time.

        A hook that fails leaves the list, and the others are started again.
        """
        end = time.monotonic() + seconds
        while True:
            hooks = [one for one in hooks if one not in self._failed]
            left = min(self._left(), end - time.monotonic()) - self._startup_s
            if self._least_s(len(hooks)) > left:
                return False
            where = "" if cap is None else f"bucket_cap_mb={cap:g}, "
            _say(f"{where}up to {self._rounds} rounds: {', '.join(hooks)}")
            changed = None if cap == self._first["cap"] else cap
            ranks = self.start(limit_s=left, model=self._first["number"], hooks=hooks, cap=changed)
            failed = {label: why for one in ranks for label, why in one["failed"].items()}
            if not failed:
                break
            self._failed |= failed
            _say(f"without {', '.join(failed)}, by which it failed")
        if ranks[0]["effects"]:
            raise UsageError(
                f"the job's own hook, {ranks[0]['hook']}, does more than average gradients, so "
                "others cannot stand in for it; tune the job without it"
            )
        if min(map(len, turns_of(ranks).values()), default=0) < FEWEST:
            raise UsageError(
                f"{self._trouble or 'The job ended.'} Each hook needs {FEWEST} turns "
                f"({TURN * (1 + FEWEST * (len(hooks) + 1))} steps); pass a command that trains for "
                "longer, or other --hooks"
            )
        self._note_trouble()
        self.by_cap[cap] = ranks
        return True

    def _note_trouble(self) -> None:
        if self._trouble:
            self.notes.append(self._trouble)

    def start(self, limit_s: float = 0.0, **more: Any) -> list[Seen]:
        """Start the job once; returns what each rank here wrote of the largest model.

        ``more``: of the plan.  Raises ``UsageError`` where no rank wrote anything.
        """
        number, token = self._starts, os.urandom(4).hex()
        self._starts += 1
        folder = (self._out / f"start{number}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        least_s = min(SECONDS, max(0.0, self._left() / 40))
        plan = Plan(
            str(folder / token), self._rounds, least_s, limit_s=limit_s, keep=self._keep, **more
        )
        output, began = folder / f"output-{token}.txt", time.monotonic()
        # The job ends by itself, at its limit too; this is for one that hangs.
        deadline = max(STARTING_S, 2 * self._startup_s) + max(self._left(), 0.0)
        code = run_job(self._command, _environment(plan), output, deadline)
        took = time.monotonic() - began
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        why = why_of(output)
        seen = [json.loads(one.read_bytes()) for one in folder.glob(f"{token}-*.json")]
        for one in seen:
            if "why_not" in one:
                raise UsageError(one["why_not"])
        if not seen:
            raise UsageError(
                f"the job {how}, and reported no model under DDP, or fully_shard, on all "
                f"ranks: {why} (all that it printed is in {output}); pass a command that trains one"
            )
        # Of a rank that was started again, or a model made again, what was seen for longest.
        seen.sort(key=lambda one: (one["bytes"], len(one["begins"])))
        by_rank = {one["rank"]: one for one in seen if one["bytes"] == seen[-1]["bytes"]}
        ranks = [by_rank[rank] for rank in sorted(by_rank)]
        begins = ranks[0]["begins"]
        self._startup_s = self._startup_s or took - (begins[-1] - begins[0]) / 1e9
        self._trouble = None if code == 0 else f"Start {number} {how}: {why}."
        return ranks

    def tuned(self) -> Tuned:
        """Return what the starts say.  Raises ``UsageError`` where it is nothing."""
        if not self.by_cap:
            raise UsageError("nothing was measured: it was ended before the hooks had their turns")
        first = next(iter(self.by_cap.values()))[0]
        settings = [
            one for cap, ranks in self.by_cap.items() for one in _settings(ranks, cap, self._plain)
        ]
        drift = [float(np.mean(one)) for one in self._plain]
        return Tuned(
            model=first["model"], own_hook=first["hook"], own_cap=self._first["cap"],
            ranks=first["ranks"], step_ns=settings[0].found.step_ns / settings[0].found.ratio,
            drift=drift[1] / drift[0] if len(drift) > 1 else None,
            settings=sorted(settings, key=lambda one: one.found.ratio),
            refused={**first["refused"], **self._failed}, notes=self.notes, folder=str(self._out),
        )  # fmt: skip


def _settings(ranks: list[Seen], cap: float | None, plain: list[Floats]) -> list[Setting]:
    turns, settings = turns_of(ranks), []
    for label in turns:
        told = [one["hooks"][label] for one in ranks]
        exposed = [one["exposed_ns"] for one in told]
        settings.append(
            Setting(
                hook=label, cap=cap, found=against(turns, label, plain),
                exposed_ns=None if None in exposed else float(np.mean(exposed)),
                wire_bytes=told[0]["wire_bytes"],
                error=max((one["error"] for one in told if one["error"] is not None), default=None),
            )
        )  # fmt: skip
    return settings


def _environment(plan: Plan) -> dict[str, str]:
    """Return this process's environment for a start, without what asks hooktrace for anything."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOOKTRACE_")}
    paths = [FOLDER, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {
        MEASURED: plan.encoded(),
        TUNING.variable: "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "HOOKTRACE_RECORD_DIR": "",  # nobody is to be told of a run
    }


def _say(what: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {what}", err=True)
