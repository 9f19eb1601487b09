"""What is asked of a start of a job, the same on all ranks, and whose turn is next in it.

    environment --Plan--> each rank; where they differ, as on another host, rank 0's holds
    labels --rounds--> a label, on rank 0, until the plan is done
    begins of steps, turns so far --turn_times--> ns a step, by label, a value a round

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
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
"""Steps at the begin of each turn that do not count: caches, and what a hook that has waited does
first."""
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

    ``where``: what the paths of a rank's files begin with.  The job ends after so many ``rounds``,
    but goes on for so many ``seconds``, by rank 0's clock; after ``limit_s`` when anything can be
    said.  ``model``: the number of the one that is tuned, ``None`` to look only.  ``hooks``: labels
    of what takes turns with ``OWN``.  ``cap``: the model's ``bucket_cap_mb``, ``None`` for its own.
    ``keep``: write record files too.  ``is_last``: after it the tuning is over.  ``follows``:
    another ``hooktrace tune`` than this rank's started rank 0.
    """

    where: str
    rounds: int
    seconds: float = 0.0
    limit_s: float = 600.0
    model: int | None = None
    hooks: Sequence[str] = ()
    cap: float | None = None
    keep: bool = False
    is_last: bool = False
    follows: bool = False

    def encoded(self) -> str:
        """Return it for the environment."""
        return json.dumps(asdict(self))


def plan() -> Plan:
    """Return the plan of a job that is tuned.

    With a process group it is rank 0's, but for where files go: another host may have started the
    job without knowing what was seen before.
    """
    return _agreed(os.environ[MEASURED])


@functools.cache
def _agreed(said: str) -> Plan:
    import torch.distributed as dist

    from ...staging.job import job_store

    own = Plan(**json.loads(said))
    if not dist.is_initialized():
        return own  # DDP says itself what is missing
    of_all = Plan(**json.loads(of_rank_0("plan", lambda: said, job_store(STORE))))
    return replace(of_all, where=own.where, follows=of_all.where != own.where)


def of_rank_0(what: str, said: Callable[[], str], store: Any) -> str:
    """Return what rank 0 says; ``said`` is called there only.  All ranks ask for the same."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        store.set(what, said())
    return str(store.get(what).decode())


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
    """Yield whose turn is next, on rank 0; ``seconds`` since the first step, ``times`` so far."""
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
