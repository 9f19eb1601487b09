"""What is asked of a start of a job, and whose turn is next in it.

    environment --Plan--> each rank; where they differ, as on another host, rank 0's holds
    labels --rounds, on rank 0--> whose turn is next, until the plan is done
    begins of steps, turns so far --turn_times--> ns a step, by label, a value a round

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of a job that ``hooktrace tune`` has started: its plan."""
STORE = "hooktrace/tune"
"""What begins the keys of the job's store."""
OWN = "as it is"
"""The label of what the job has: its script's hook, or torch's own average."""
TURN = 8
"""Steps of a turn."""
LEFT_OUT = 3
"""Steps at the begin of each turn that do not count: caches, warm starts."""
FEWEST = 5
"""Rounds below which nothing is said of a hook."""
SURVIVORS = 3
"""Hooks, beside the job's own, that stay to the end."""
_PATIENCE = 4
"""In how many times its limit a start comes to ``FEWEST`` rounds, or ends without."""

Turn = tuple[str, int]
"""Whose it is, and its first step."""
Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Plan:
    """One start of a job.

    - ``where``: what the paths of a rank's files begin with.
    - ``rounds``, ``seconds``: the job ends once it has made so many, in so much time or more.
    - ``limit_s``: seconds after which it ends when anything can be said.
    - ``model``: the number of the one that is tuned, ``None`` to look only.
    - ``hooks``: labels of what takes turns with ``OWN``.
    - ``cap``: the model's ``bucket_cap_mb``, ``None`` for its own.
    - ``is_last``: the tuning is over then.
    - ``follows``: another ``hooktrace tune`` than this rank's started rank 0.
    """

    where: str
    rounds: int
    seconds: float = 0.0
    limit_s: float = 600.0
    model: int | None = None
    hooks: Sequence[str] = ()
    cap: float | None = None
    is_last: bool = False
    follows: bool = False


def own_plan() -> Plan:
    """Return what the process that started this one asks."""
    return Plan(**json.loads(os.environ[MEASURED]))


def plan() -> Plan:
    """Return what is asked of this job: with a process group rank 0's plan, but for its files."""
    import torch.distributed as dist

    from ...staging.job import job_store

    own = own_plan()
    if not dist.is_initialized():
        return own  # DDP says itself what is missing
    said = of_rank_0("plan", lambda: os.environ[MEASURED], job_store(STORE))
    asked = Plan(**json.loads(said))
    return replace(asked, where=own.where, follows=asked.where != own.where)


def of_rank_0(what: str, said: Callable[[], str], store: Any) -> str:
    """Return what rank 0 says; ``said`` is called there only.  All ranks ask for the same."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        store.set(what, said())
    return str(store.get(what).decode())


def folder_of(start: Path, label: str) -> Path:
    """Return where the record files of a start's hook are."""
    return start / label.replace(" ", "-")


def turn_times(begins: Sequence[int], turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Return the mean step of each turn that is over, ns, by label.

    In the first turn, which nobody has, DDP settles its buckets.
    """
    found: dict[str, list[float]] = {}
    for label, first in turns[1:]:
        if first + TURN < len(begins):
            spent = begins[first + TURN] - begins[first + LEFT_OUT]
            found.setdefault(label, []).append(spent / (TURN - LEFT_OUT))
    return found


def rounds(
    labels: Sequence[str], plan: Plan, seconds: Callable[[], float], times: Callable[[], Times]
) -> Iterator[str]:
    """Yield whose turn is next; ``seconds`` since the first step, ``times`` so far."""
    alive, halved_at = [*labels], FEWEST
    draw = random.Random()  # not the script's own
    for over in count():
        if over >= plan.rounds and seconds() >= plan.seconds:
            return
        if over >= FEWEST and seconds() >= plan.limit_s:
            return
        if over == halved_at:
            halved_at *= 2
            alive = _halved(alive, times())
        for label in draw.sample(alive, len(alive)):
            if seconds() >= _PATIENCE * plan.limit_s:
                return
            yield label


def _halved(alive: Sequence[str], times: Times) -> list[str]:
    others = sorted((one for one in alive if one != OWN), key=lambda one: median(times[one]))
    stay = max(SURVIVORS, (len(others) + 1) // 2)
    slow = {
        label
        for label in others[stay:]
        if all(mine > best for mine, best in zip(times[label], times[others[0]], strict=True))
    }
    return [one for one in alive if one not in slow]
