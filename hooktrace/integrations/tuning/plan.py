"""What is asked of a start of a job, the same on all ranks.

    environment --Plan--> each rank; where they differ, as on another host, rank 0's holds

A model is known by the shapes of its parameters, since it has no name yet when it is made.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of a job that ``hooktrace tune`` has started: its plan."""

_KEY = "hooktrace/tune"


@dataclass(frozen=True, slots=True)
class Plan:
    """One start of a job.

    ``folder``: where each rank writes what it saw.  The job ends after so many ``rounds``, but goes
    on for so many ``seconds``, by rank 0's clock; after ``limit_s`` when anything can be said.
    ``shapes``: of the parameters of the model that is tuned, as of ``shapes_key``; ``None`` to look
    only.  ``hooks``: labels of what takes turns with ``OWN``, of ``turn`` steps each.
    ``cap``: the model's ``bucket_cap_mb``, ``None`` for its own.  ``keep``: write record files too.
    ``is_last``: after it the tuning is over.  ``token``: of who started this process, in the names
    of its files.  ``follows``: that was not who started rank 0.
    """

    folder: str
    rounds: int
    shapes: str | None = None
    hooks: tuple[str, ...] = ()
    cap: float | None = None
    turn: int = 8
    keep: bool = False
    is_last: bool = False
    seconds: float = 0.0
    token: str = ""
    limit_s: float = 600.0
    follows: bool = False

    def encoded(self) -> str:
        """Return it for the environment."""
        return json.dumps(asdict(self))

    def is_of(self, module: nn.Module) -> bool:
        """Return whether something is asked of a module: of all of them where it is to look."""
        return self.shapes is None or self.shapes == shapes_key(trained(module))


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

    own = _decoded(said)
    if not dist.is_initialized():
        return own  # DDP says itself what is missing
    of_all = _decoded(of_rank_0("plan", lambda: said))
    follows = of_all.token != own.token
    return replace(of_all, folder=own.folder, token=own.token, follows=follows)


def _decoded(said: str) -> Plan:
    found = json.loads(said)
    return Plan(**{**found, "hooks": tuple(found["hooks"])})


def of_rank_0(what: str, said: Callable[[], str]) -> str:
    """Return what rank 0 says; ``said`` is called there only.  All ranks ask for the same."""
    import torch.distributed as dist

    from ...staging.job import job_store

    store, key = job_store(), f"{_KEY}/{what}"
    if dist.get_rank() == 0:
        store.set(key, said())
    return str(store.get(key).decode())


def shapes_key(shapes: Iterable[Sequence[int]]) -> str:
    """Return what tells parameters of other shapes apart, in whatever order."""
    said = ";".join(sorted(",".join(map(str, shape)) for shape in shapes))
    return hashlib.sha256(said.encode()).hexdigest()


def trained(module: nn.Module) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters whose gradients are averaged, whole ones if sharded."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = module.named_parameters()
    return [tuple(p.shape) for name, p in named if p.requires_grad and name not in ignored]


def cap_of(module: nn.Module) -> float | None:
    """Return the limit of bucket sizes that is asked for."""
    wanted = plan()
    return wanted.cap if wanted is not None and wanted.is_of(module) else None
