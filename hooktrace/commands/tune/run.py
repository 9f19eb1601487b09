"""The whole of a tuning: starts within a time, and what they say, or as much as is known.

On several machines the same command is given on each.  Where no process is rank 0 the starts only
follow: what is asked of each comes from rank 0's machine, through torch's store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from ...hooks.catalogue import candidates
from ...integrations.tuning.hooks import SHARDED
from ...integrations.tuning.rounds import FEWEST, OWN
from ...records.errors import UsageError
from . import starts
from .measure import Floats, Seen, against, turns_of
from .show import Setting, Tuned, as_json, as_text

BEFORE = """\
hooktrace tune starts the command up to {starts} times, for --minutes {minutes:g} in all, and
ends it each time. It trains for real: what the script writes, it writes, checkpoints too. A script
can ask for it: HOOKTRACE_TUNING is 1 then."""


def tune(
    command: Sequence[str],
    *,
    minutes: float,
    steps: int,
    hooks: Sequence[str],
    caps: Sequence[float],
    out: Path | None,
    json_path: Path | None,
) -> int:
    """Tune a job; returns 0, or 1 where it was interrupted or a later start failed.

    Raises ``UsageError`` where nothing can be tuned, and why.
    """
    asked = _checked(hooks)
    if not command:
        raise UsageError(
            "pass after -- the command that starts the job, as hooktrace tune -- torchrun "
            "--nproc-per-node 2 train.py"
        )
    starts_at_most = 3 + len(caps or starts.CAPS[1:])
    typer.echo(BEFORE.format(starts=starts_at_most, minutes=minutes), err=True)
    folder = out or Path("runs", f"tune-{time.strftime('%Y%m%d-%H%M%S')}")
    end = time.monotonic() + 60 * minutes
    job = starts.Job(command, folder, end, out is not None, os.urandom(4).hex())
    found = _Tuning(job, starts.rounds_for(steps), asked, caps)
    code = 0
    try:
        if not found.run():
            typer.echo("the machine of rank 0 says what was found")
            return 0
    except KeyboardInterrupt:
        job.notes.append("interrupted: this is what was known by then")
        code = 1
    except UsageError as error:
        if not found.has_settings:
            raise
        job.notes.append(f"Not all was tried: {error}")
        code = 1
    tuned = found.tuned()
    typer.echo(as_text(tuned))
    if json_path is not None:
        json_path.write_bytes(as_json(tuned))
    return code


def _checked(hooks: Sequence[str]) -> tuple[str, ...]:
    known = [one for kind in _LABELS for one in _labels(kind)]
    unknown = [one for one in hooks if one not in known]
    if unknown:
        raise UsageError(f"no hook is called {unknown[0]}; choose from {', '.join(known)}")
    return tuple(hooks)


def _labels(kind: str) -> tuple[str, ...]:
    return tuple(SHARDED) if kind == "fsdp2" else tuple(one.name for one in candidates())


_LABELS = {"ddp": "DDP", "fsdp2": "fully_shard"}
"""Kinds of models that can be tuned, in words."""


class _Tuning:
    """The starts that were made, and what they gave so far."""

    def __init__(
        self, job: starts.Job, rounds: int, asked: tuple[str, ...], caps: Sequence[float]
    ) -> None:
        self._job, self._rounds, self._asked, self._caps = job, rounds, asked, caps
        self._plain: list[Floats] = []
        self._seen: Seen = {}
        self._by_cap: dict[float | None, list[Seen]] = {}
        self._failed: dict[str, str] = {}

    def run(self) -> bool:
        """Make the starts, as far as the time goes; returns whether rank 0 was here."""
        job = self._job
        _say("the job as it is")
        first = job.start(self._rounds, job.left() / 8)
        if first[0]["follows"]:
            while not first[0]["last"]:
                _say("as rank 0's machine asks")
                first = job.start(0, 0.0)
            return False
        if first[0]["ranks"] < 2:
            raise UsageError("the job has one rank, which sends nothing; start it with two or more")
        job.step_s = float(self._as_it_is(first).mean()) / 1e9
        job.shapes = first[0]["shapes"]
        own_cap = first[0]["cap"]
        labels = self._labels_for(first[0]["kind"])
        seen = self._turns(own_cap, labels, None, job.left() / 2)
        if seen is None:
            raise UsageError(
                f"a step takes {job.step_s:.2g} s, and {job.left() / 2:.0f} s, half of what is "
                f"left, are too few for {len(labels)} of --hooks; ask for more --minutes or for "
                "fewer hooks"
            )
        if own_cap is not None:
            best = starts.survivors(seen)
            for cap in sorted(starts.caps_of(first[0]["bytes"], own_cap, self._caps), reverse=True):
                last_s = job.startup_s + starts.steps_for(FEWEST, 0) * job.step_s
                if self._turns(cap, best, cap, job.left() - last_s) is None:
                    job.notes.append(f"No time was left for bucket_cap_mb={cap:g}: more --minutes.")
        _say("the job as it is, once more")
        least_s = starts.steps_for(FEWEST, 0) * job.step_s
        self._as_it_is(job.start(self._rounds, max(least_s, job.left()), is_last=True))
        return True

    def _labels_for(self, kind: str) -> tuple[str, ...]:
        """Return the hooks to try; raises ``UsageError`` for one that is for other models."""
        known = _labels(kind)
        others = [one for one in self._asked if one not in known]
        if others:
            raise UsageError(
                f"{others[0]} is no hook for a model under {_LABELS[kind]}; choose from "
                f"{', '.join(known)}"
            )
        if kind == "fsdp2" and self._caps:
            raise UsageError("a sharded model has no bucket_cap_mb; leave --caps out")
        return self._asked or known

    @property
    def has_settings(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._by_cap)

    def _as_it_is(self, seen: list[Seen]) -> Floats:
        """Keep what a start without hooks of ours gave, a step's time in each turn, ns."""
        found = turns_of(seen, starts.TURN).get(OWN, np.zeros(0))
        if len(found) < FEWEST:
            raise UsageError(
                f"the job ended after {len(seen[0]['begins'])} steps, too few to tell anything; "
                "pass a command that trains for longer, or more --minutes"
            )
        if self._job.trouble:
            self._job.notes.append(self._job.trouble)
        self._plain.append(found)
        self._seen = self._seen or seen[0]
        return found

    def _turns(
        self, cap: float | None, hooks: tuple[str, ...], changed: float | None, seconds: float
    ) -> list[Seen] | None:
        """Have hooks take turns at a limit of bucket sizes, where that fits into the time.

        A hook that fails leaves the list, and the others are started again.
        """
        job, end = self._job, time.monotonic() + seconds
        while True:
            hooks = tuple(one for one in hooks if one not in self._failed)
            left = min(job.left(), end - time.monotonic()) - job.startup_s
            rounds = starts.fitting(self._rounds, len(hooks), job.step_s, left)
            if not rounds:
                return None
            where = "" if cap is None else f"bucket_cap_mb={cap:g}, "
            _say(f"{where}{rounds} rounds: {', '.join(hooks)}")
            seen = job.start(rounds, left, shapes=job.shapes, hooks=hooks, cap=changed)
            failed = starts.failed_in(seen)
            if not failed:
                break
            self._failed |= failed
            _say(f"without {', '.join(failed)}, by which it failed")
        if seen[0]["effects"]:
            raise UsageError(
                f"the job's own hook, {seen[0]['hook']}, does more than average gradients, so "
                "others cannot stand in for it; tune the job without it"
            )
        if min(map(len, turns_of(seen, starts.TURN).values()), default=0) < FEWEST:
            needs = starts.steps_for(FEWEST, len(hooks))
            raise UsageError(
                f"{job.trouble or 'The job ended.'} Each hook needs {FEWEST} turns ({needs} "
                "steps); pass a command that trains for longer, or other --hooks"
            )
        if job.trouble:
            job.notes.append(job.trouble)
        self._by_cap[cap] = seen
        return seen

    def tuned(self) -> Tuned:
        """Return what the starts say.  Raises ``UsageError`` where it is nothing."""
        if not self._by_cap:
            raise UsageError("nothing was measured: it was ended before the hooks had their turns")
        plain = self._plain
        first = next(iter(self._by_cap.values()))[0]
        settings = [
            _setting(seen, label, cap, plain)
            for cap, seen in self._by_cap.items()
            for label in turns_of(seen, starts.TURN)
        ]
        return Tuned(
            model=first["model"], own_hook=first["hook"], own_cap=self._seen["cap"],
            ranks=first["ranks"], step_ns=settings[0].found.step_ns / settings[0].found.ratio,
            drift=None if len(plain) < 2 else float(np.mean(plain[1]) / np.mean(plain[0])),
            settings=sorted(settings, key=lambda one: one.found.ratio),
            refused={**first["refused"], **self._failed}, notes=self._job.notes,
            folder=str(self._job.out),
        )  # fmt: skip


def _setting(seen: list[Seen], label: str, cap: float | None, plain: list[Floats]) -> Setting:
    told = [one["hooks"][label] for one in seen]
    exposed = [one["exposed_ns"] for one in told]
    errors = [one["error"] for one in told if one["error"] is not None]
    return Setting(
        hook=label, cap=cap, found=against(turns_of(seen, starts.TURN), label, plain),
        exposed_ns=None if None in exposed else float(np.mean(exposed)),
        wire_bytes=told[0]["wire_bytes"], error=max(errors, default=None),
        peak_bytes=seen[0]["peaks"].get(label),
    )  # fmt: skip


def _say(what: str) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {what}", err=True)
