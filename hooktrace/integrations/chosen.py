"""A hook and a limit of bucket sizes for scripts that stay as they are, from the environment.

HOOKTRACE_HOOK --hook_asked--> the hook of a model that has none
HOOKTRACE_BUCKET_CAP_MB --> make_with_cap: DDP(module, bucket_cap_mb=...)
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tracing.options import BUCKET_CAP_MB, HOOK

if TYPE_CHECKING:
    from torch import nn

    from ..hooks.catalogue import HookEntry

logger = logging.getLogger("hooktrace")


def hook_asked() -> HookEntry | None:
    """Return the hook for models without one of their own."""
    name = HOOK.read()
    if name is None:
        return None
    from ..hooks.catalogue import candidates

    found = {one.name: one for one in candidates()}
    if name not in found:
        logger.warning("HOOKTRACE_HOOK=%s has no effect; use one of %s", name, ", ".join(found))
    return found.get(name)


def make_with_cap(ddp: Any, cap_of: Callable[[nn.Module], float | None] | None = None) -> None:
    """Have models made with the limit of bucket sizes that is asked for, which torch takes then."""
    original = ddp.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # DDP's own
        bound = signature.bind(self, *args, **options)
        cap = cap_of(bound.arguments["module"]) if cap_of else BUCKET_CAP_MB.read()
        if cap:
            bound.arguments["bucket_cap_mb"] = cap
            bound.arguments.pop("bucket_cap_mb_list", None)  # of newer torch, in its place
        original(*bound.args, **bound.kwargs)

    ddp.__init__ = __init__
