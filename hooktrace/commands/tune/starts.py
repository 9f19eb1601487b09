"""The starts of a user's command: which there are, and what each one's ranks wrote.

as it is -> the model, its step --hooks--> all hooks take turns at its own bucket_cap_mb
  -> the best ones at other sizes, a start each -> as it is, once more, for what drifts
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...integrations.start import FOLDER
from ...integrations.tuning.plan import MEASURED, Plan
from ...integrations.tuning.rounds import FEWEST, LEFT_OUT, OWN, SURVIVORS
from ...integrations.tuning.watch import REFUSED
from ...records.errors import UsageError
from ...tracing.options import TUNING
from .job import run_job, why_of
from .measure import Seen, turns_of, within

TURN = 8
"""Steps of a turn, of which the first ones are left out."""
CAPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""MB that are tried where they make another number of buckets, MOST_BUCKETS at most."""
MOST_BUCKETS = 100
SECONDS = 20.0
"""What a start takes at least, so that short steps are many."""
_STARTING_S = 120.0
"""What a job may take to come to its first step."""


@dataclass
class Job:
    """A user's command, and the time that is left for it.

    ``step_s`` and ``shapes``: of the model that is tuned, once it was seen.  ``startup_s``: what
    the first start took before and after its steps.
    """

    command: Sequence[str]
    out: Path
    end: float
    keep: bool
    token: str
    step_s: float = 0.0
    startup_s: float = 0.0
    shapes: str | None = None
    starts: int = 0
    trouble: str | None = None
    """Why the last start ended before its plan did."""
    notes: list[str] = field(default_factory=list)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.end - time.monotonic()

    def start(self, rounds: int, limit_s: float, **changed: Any) -> list[Seen]:
        """Run one start; return what each rank here wrote of the largest model, in their order.

        It ends after so many ``rounds``, and with fewer when they take longer than ``limit_s``.
        Raises ``UsageError`` where none wrote anything.
        """
        number, self.starts = self.starts, self.starts + 1
        folder = (self.out / f"start{number}").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            str(folder), rounds, turn=TURN, keep=self.keep, token=self.token,
            seconds=min(SECONDS, max(0.0, self.left() / 40)),
            limit_s=limit_s,
        )  # fmt: skip
        output, began = folder / f"output-{plan.token}.txt", time.monotonic()
        # The job ends by itself, at its limit too; this is for one that hangs.
        deadline = max(_STARTING_S, 2 * self.startup_s) + max(self.left(), 0.0)
        code = run_job(self.command, _environment(replace(plan, **changed)), output, deadline)
        took = time.monotonic() - began
        seen = _largest(folder.glob(f"{plan.token}-*.json"))
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        why = why_of(output)
        refused = folder / f"{plan.token}-{REFUSED}"
        if refused.exists():
            raise UsageError(refused.read_text("utf-8"))
        if not seen:
            raise UsageError(
                f"the job {how}, and reported no model under DDP, or fully_shard, on all "
                f"ranks: {why} (all that it printed is in {output}); pass a command that trains one"
            )
        begins = seen[0]["begins"]
        self.startup_s = self.startup_s or took - (begins[-1] - begins[0]) / 1e9
        self.trouble = None if code == 0 else f"Start {number} {how}: {why}."
        return seen


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


def _largest(paths: Iterable[Path]) -> list[Seen]:
    """Return what the ranks wrote of the model with most parameters, of each rank once."""
    seen = [json.loads(path.read_text("utf-8")) for path in sorted(paths)]
    if not seen:
        return []
    size = max(one["bytes"] for one in seen)
    # Of a rank that was started again, or a model made again, what was seen for longest.
    seen.sort(key=lambda one: len(one["begins"]))
    by_rank = {one["rank"]: one for one in seen if one["bytes"] == size}
    return [by_rank[rank] for rank in sorted(by_rank)]


def failed_in(ranks: Sequence[Seen]) -> dict[str, str]:
    """Return the hooks that a start has failed by, and why.

    A collective fails on all others where one rank is gone, whoever's turn it is: there a hook is
    to blame where it fails on all of them, those of this machine, and in the same way.
    """
    found = {}
    for label in ranks[0]["hooks"]:
        told = [one["hooks"][label]["failed"] for one in ranks]
        said = [one[1] for one in told if one]
        own = [one[1] for one in told if one and not one[0]]
        if own or (len(said) == ranks[0]["here"] and len(set(said)) == 1):
            found[label] = f"it failed: {(own or said)[0]}"
    return {label: why for label, why in found.items() if label != OWN}


def caps_of(size: int, own: float, asked: Sequence[float]) -> list[float]:
    """Return the limits to try for a model of so many bytes: what is asked, or what differs.

    Two limits that cut the gradients into as many buckets are one.
    """
    if asked:
        return [cap for cap in asked if cap != own]
    counts = {-(-size // int(own * 2**20))}
    found = []
    for cap in CAPS:
        count = -(-size // int(cap * 2**20))
        if count not in counts and count <= MOST_BUCKETS:
            found.append(cap)
            counts.add(count)
    return found


def survivors(ranks: Sequence[Seen], most: int = SURVIVORS) -> tuple[str, ...]:
    """Return the hooks that go on to other sizes: those with the shortest steps."""
    turns = turns_of(ranks, TURN)
    others = sorted((label for label in turns if label != OWN), key=lambda one: within(turns, one))
    return tuple(others[:most])


def rounds_for(steps: int) -> int:
    """Return how many rounds give a hook so many steps that count."""
    return max(FEWEST, -(-steps // (TURN - LEFT_OUT)))


def steps_for(rounds: int, hooks: int) -> int:
    """Return how long a start is in which so many hooks, and the job's own, have their rounds.

    Some leave before, which is not known yet.
    """
    return TURN * (1 + rounds * (hooks + 1))


def fitting(rounds: int, hooks: int, step_s: float, seconds: float) -> int:
    """Return how many rounds fit into some time, 0 where too few do."""
    fit = int((seconds / step_s / TURN - 1) / (hooks + 1))
    return min(rounds, fit) if fit >= FEWEST else 0
