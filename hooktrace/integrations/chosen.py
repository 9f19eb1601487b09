"""A hook and a limit of bucket sizes for scripts that stay as they are, from the environment.

HOOKTRACE_HOOK --hook_asked--> the hook of a model that has none
HOOKTRACE_BUCKET_CAP_MB --cap_asked--> make_with_cap: DDP(module, bucket_cap_mb=...)
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from ..hooks.candidates import Candidate

logger = logging.getLogger("hooktrace")

CAP, HOOK = "HOOKTRACE_BUCKET_CAP_MB", "HOOKTRACE_HOOK"


def hook_asked() -> Candidate | None:
    """Return the hook for models without one of their own."""
    name = os.environ.get(HOOK)
    if not name:
        return None
    from ..hooks.candidates import candidates

    found = {one.label: one for one in candidates()}
    if name not in found:
        logger.warning("%s=%s is left out; it is one of %s", HOOK, name, ", ".join(found))
    return found.get(name)


def cap_asked(_: nn.Module) -> float | None:
    """Return the limit for all models."""
    try:
        return float(os.environ[CAP])
    except ValueError:
        logger.warning("%s=%s is no number of MB, and is left out", CAP, os.environ[CAP])
        return None


def make_with_cap(ddp: Any, cap_of: Callable[[nn.Module], float | None] = cap_asked) -> None:
    """Have models made with the limit of bucket sizes that is asked for, which torch takes then."""
    original = ddp.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # DDP's own
        bound = signature.bind(self, *args, **options)
        cap = cap_of(bound.arguments["module"])
        if cap:
            bound.arguments["bucket_cap_mb"] = cap
            bound.arguments.pop("bucket_cap_mb_list", None)  # of newer torch, in its place
        original(*bound.args, **bound.kwargs)

    ddp.__init__ = __init__
