"""What ``hooktrace tune`` asks of a start of a job, and limits of bucket sizes from outside.

    environment --Plan--> each rank; where they differ, as on another host, rank 0's holds
    HOOKTRACE_BUCKET_CAP_MB, or the plan's --make_with_cap--> DDP(module, bucket_cap_mb=...)
    HOOKTRACE_HOOK --hook_asked--> the hook of a model that has none

A model is known by the shapes of its parameters, since it has no name yet when it is made.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from ..hooks.candidates import Candidate

logger = logging.getLogger("hooktrace")

MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of a job that ``hooktrace tune`` has started: its plan."""

CAP, HOOK = "HOOKTRACE_BUCKET_CAP_MB", "HOOKTRACE_HOOK"
"""Settings of ``hooktrace run``, with what a tuning has found best."""

_KEY = "hooktrace/tune"

ASKED = "HOOKTRACE_TUNING"
"""``1`` in a job that is being tuned, for scripts that would rather not save then."""

OWN = "as it is"
"""The label of the hook that the job has: its script's, or DDP's own average."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One start of a job.

    ``folder``: where each rank writes what it saw.  The job ends after so many ``steps``, but goes
    on for so many ``seconds``, by rank 0's clock; and after ``limit_s`` in any case.
    ``shapes``: of the parameters of the model that is tuned, as of ``shapes_key``; ``None`` to look
    only.  ``hooks``: labels of candidates that take turns with ``OWN``, of ``turn`` steps each.
    ``cap``: the model's ``bucket_cap_mb``, ``None`` for its own.  ``keep``: write record files too.
    ``number``: of the start; with it ``seed`` gives the order of each round.  ``is_last``: after it
    the tuning is over.  ``token``: of who started this process, in the names of its files.
    ``follows``: that was not who started rank 0.
    """

    folder: str
    steps: int
    shapes: str | None = None
    hooks: tuple[str, ...] = ()
    cap: float | None = None
    turn: int = 8
    keep: bool = False
    number: int = 0
    seed: int = 0
    is_last: bool = False
    seconds: float = 0.0
    token: str = ""
    limit_s: float = 600.0
    follows: bool = False

    def encoded(self) -> str:
        """Return it for the environment."""
        return json.dumps(asdict(self))

    def is_of(self, module: nn.Module) -> bool:
        """Return whether a module's parameters, those that DDP averages, have these shapes."""
        return self.shapes == shapes_key(trained(module))

    def order(self, labels: Sequence[str], turn: int) -> str:
        """Return whose turn it is: a round has each label once, in an order drawn anew."""
        in_round, place = divmod(turn, len(labels))
        drawn = random.Random(f"{self.seed} {self.number} {in_round}")
        return drawn.sample(labels, len(labels))[place]


def plan() -> Plan | None:
    """Return this process's plan, ``None`` in a process of any other job.

    With a process group it is rank 0's, but for where files go: another host may have started the
    job without knowing what was seen before.
    """
    said = os.environ.get(MEASURED)
    return _agreed(said) if said else None


@functools.cache
def _agreed(said: str) -> Plan:
    import torch.distributed as dist

    from ..ranks.job import job_store

    own = _decoded(said)
    if not dist.is_initialized():
        return own  # DDP says itself what is missing
    store = job_store()
    if dist.get_rank() == 0:
        store.set(_KEY, said)
    of_all = _decoded(store.get(_KEY).decode())
    follows = of_all.token != own.token
    return replace(of_all, folder=own.folder, token=own.token, follows=follows)


def _decoded(said: str) -> Plan:
    found = json.loads(said)
    return Plan(**{**found, "hooks": tuple(found["hooks"])})


def is_enough(model: int, step: int, seconds: float, wanted: Plan) -> bool:
    """Return whether a job ends with a model's step, ``seconds`` after its first: rank 0 says it.

    ``model``: its number among those that were made.
    """
    import torch.distributed as dist

    from ..ranks.job import job_store

    store, key = job_store(), f"{_KEY}/{model}/{step}"
    if dist.get_rank() == 0:
        is_done = step >= wanted.steps and seconds >= wanted.seconds
        store.set(key, str(int(is_done or seconds >= wanted.limit_s)))
    return bool(int(store.get(key)))


def shapes_key(shapes: Iterable[Sequence[int]]) -> str:
    """Return what tells parameters of other shapes apart, in whatever order."""
    said = ";".join(sorted(",".join(map(str, shape)) for shape in shapes))
    return hashlib.sha256(said.encode()).hexdigest()


def trained(module: nn.Module) -> list[tuple[int, ...]]:
    """Return the shapes of what DDP averages of a module."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = module.named_parameters()
    return [tuple(p.shape) for name, p in named if p.requires_grad and name not in ignored]


def make_with_cap(ddp: Any) -> None:
    """Have models made with the limit of bucket sizes that is asked for, which torch takes then."""
    original = ddp.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # DDP's own
        bound = signature.bind(self, *args, **options)
        cap = _cap_of(bound.arguments["module"])
        if cap:
            bound.arguments["bucket_cap_mb"] = cap
            bound.arguments.pop("bucket_cap_mb_list", None)  # of newer torch, in its place
        original(*bound.args, **bound.kwargs)

    ddp.__init__ = __init__


def _cap_of(module: nn.Module) -> float | None:
    if MEASURED in os.environ:
        wanted = plan()
        return wanted.cap if wanted is not None and wanted.is_of(module) else None
    try:
        return float(os.environ[CAP])
    except ValueError:
        logger.warning("%s=%s is no number of MB, and is left out", CAP, os.environ[CAP])
        return None


def hook_asked() -> Candidate | None:
    """Return the hook that the environment gives models without one of their own."""
    name = os.environ.get(HOOK)
    if not name:
        return None
    from ..hooks.candidates import candidates

    found = {one.label: one for one in candidates()}
    if name not in found:
        logger.warning("%s=%s is left out; it is one of %s", HOOK, name, ", ".join(found))
    return found.get(name)
