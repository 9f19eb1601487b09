"""What is asked of a start of a job, the same on all ranks.

    environment --Plan--> each rank; where they differ, as on another host, rank 0's holds

A model is known by the shapes of its parameters, since it has no name yet when it is made.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of a job that ``hooktrace tune`` has started: its plan."""
STORE = "hooktrace/tune"
"""What begins the keys of the job's store."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One start of a job.

    ``where``: what the paths of a rank's files begin with.  ``follows``: another ``hooktrace tune``
    than this rank's started rank 0.  The job ends after so many ``rounds``, but goes on for so many
    ``seconds``, by rank 0's clock; after ``limit_s`` when anything can be said.  ``shapes``: of the
    model that is tuned (``shapes_of``), ``None`` to look only.  ``hooks``: labels of what takes
    turns with ``OWN``.  ``cap``: the model's ``bucket_cap_mb``, ``None`` for its own.  ``keep``:
    write record files too.  ``is_last``: after it the tuning is over.
    """

    where: str
    rounds: int
    shapes: str | None = None
    hooks: Sequence[str] = ()
    cap: float | None = None
    keep: bool = False
    is_last: bool = False
    seconds: float = 0.0
    limit_s: float = 600.0
    follows: bool = False

    def encoded(self) -> str:
        """Return it for the environment."""
        return json.dumps(asdict(self))

    def is_of(self, module: nn.Module) -> bool:
        """Return whether something is asked of a module: of all of them where it is to look."""
        return self.shapes is None or self.shapes == shapes_of(module)


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


def shapes_of(module: nn.Module) -> str:
    """Return what tells models apart: the shapes of what is trained, whole ones if sharded."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    named = module.named_parameters()
    shapes = [tuple(p.shape) for name, p in named if p.requires_grad and name not in ignored]
    return hashlib.sha256(str(sorted(shapes)).encode()).hexdigest()


def cap_of(module: nn.Module) -> float | None:
    """Return the limit of bucket sizes that is asked for."""
    wanted = plan()
    return wanted.cap if wanted is not None and wanted.is_of(module) else None
