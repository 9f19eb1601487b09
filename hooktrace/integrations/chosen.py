"""Another hook and another limit of bucket sizes for a script that knows nothing of it.

    who compares hooks --Chosen.encoded--> environment --> each rank: chosen()
      DDP(module, ...)      --its parameters are the run's?--> the chosen bucket_cap_mb
      the hook it registers --likewise--> models.py: the chosen one with a state of its own

A model is known by the shapes of its parameters, since it has no name yet when it is made.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from ..hooks.candidates import Candidate

logger = logging.getLogger("hooktrace")

VARIABLE = "_HOOKTRACE_CHOICE"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be changed in models whose parameters have these shapes; ``None``: nothing.

    ``shapes``: as of ``shapes_key``.  ``hook``: a candidate's label.
    """

    shapes: str
    hook: str | None
    bucket_cap_mb: float | None

    def encoded(self) -> str:
        """Return it for ``VARIABLE``."""
        import json  # 5 ms that a script need not pay

        return json.dumps(asdict(self))

    def is_of(self, module: nn.Module) -> bool:
        """Return whether a module's parameters, those that DDP averages, have these shapes."""
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = module.named_parameters()
        found = [tuple(p.shape) for name, p in named if p.requires_grad and name not in ignored]
        return shapes_key(found) == self.shapes


def shapes_key(shapes: Iterable[Sequence[int]]) -> str:
    """Return what tells parameters of other shapes apart, in whatever order."""
    said = ";".join(sorted(",".join(map(str, shape)) for shape in shapes))
    return hashlib.sha256(said.encode()).hexdigest()


def chosen() -> Chosen | None:
    """Return what is to be changed in this process, ``None`` in a process of any other job."""
    said = os.environ.get(VARIABLE)
    if not said:
        return None
    import json

    return Chosen(**json.loads(said))


def hook_for(module: nn.Module) -> Candidate | None:
    """Return the hook that a model is to have in place of its own, if any."""
    wanted = chosen()
    if wanted is None or wanted.hook is None or not wanted.is_of(module):
        return None
    from ..hooks.candidates import candidates

    return next(one for one in candidates() if one.label == wanted.hook)


def make_with_cap(ddp: Any) -> None:
    """Have models made with the chosen limit of bucket sizes, which torch takes only then."""
    original = ddp.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # DDP's own
        bound = signature.bind(self, *args, **options)
        wanted = chosen()
        if wanted is not None and wanted.bucket_cap_mb and wanted.is_of(bound.arguments["module"]):
            bound.arguments["bucket_cap_mb"] = wanted.bucket_cap_mb
            bound.arguments.pop("bucket_cap_mb_list", None)  # of newer torch, in its place
        original(*bound.args, **bound.kwargs)

    ddp.__init__ = __init__
