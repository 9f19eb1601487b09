"""Every model that ``fully_shard`` has sharded, from when FSDP settles which is its root.

    torch.distributed.fsdp is there --watch--> FSDPState's lazy initialisation, once for each root
      in its first forward pass, before its first collective --> trace_from --> hooktrace.fsdp.trace

The first module that runs becomes the root.  Where the model as such is not sharded, each of its
units is a root: the module that was called is then traced, with all of them as one model.  FSDP1
shows its collectives to nobody, which is said when a model of it is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from .patches import replace, warn_once

if TYPE_CHECKING:
    from torch import nn

_FSDP1 = (
    "a model is sharded by FSDP1 (FullyShardedDataParallel), which shows its collectives to "
    "nobody: it is not traced; shard it with torch.distributed.fsdp.fully_shard to trace it"
)


def watch(fsdp: ModuleType, settled: Callable[[nn.Module], None]) -> None:
    """Have sharded models traced.

    ``fsdp``: torch.distributed.fsdp, which has been imported.  ``settled``: ``trace_from``, or what
    else is called with a root that is being called; what it raises is logged.
    """
    state = sys.modules.get(f"{fsdp.__name__}._fully_shard._fsdp_state")
    kind = getattr(state, "FSDPState", None)
    replace(getattr(fsdp, "FullyShardedDataParallel", None), "__init__", _warning)
    replace(kind, "_lazy_init", _telling(settled), "settles the root of a sharded model")
    # A script may make the default tracer of its own before any model is called.
    replace(kind, "init", _choosing)


def _warning(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # FSDP1's own
        original(self, *args, **options)
        from ..staging.job import current_rank

        if current_rank() == 0:
            warn_once(_FSDP1)

    return __init__


def _choosing(original: Any) -> Any:
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        from . import ending

        ending.choose_folder()

    return init


def _telling(settled: Callable[[nn.Module], None]) -> Callable[[Any], Any]:
    def telling(original: Any) -> Any:
        def _lazy_init(self: Any) -> None:
            is_settled = self._is_root is not None
            original(self)
            if not is_settled:
                _tell(settled, self._modules[0])

        return _lazy_init

    return telling


def _tell(settled: Callable[[nn.Module], None], root: nn.Module) -> None:
    try:
        settled(root)
    except Exception as error:  # whatever it is, the script goes on
        warn_once(f"a sharded model is not traced: {error}; training goes on")


def trace_from(root: nn.Module) -> None:
    """Trace the model of a root that is being called, unless the script does.

    Raises what ``fsdp.trace`` raises.
    """
    from ..fsdp.trace import is_traced, trace
    from . import ending

    ending.model_seen()
    if not is_traced(root):
        model = outermost(root)
        trace(model, name=name_of(model)).in_forward(model)


def outermost(root: nn.Module) -> nn.Module:
    """Return the outermost module under way that has sharded modules which ``root`` has not."""
    from ..fsdp.torch_groups import sharded_modules

    found, count = root, len(sharded_modules(root))
    for module in _under_way():
        of_module = sharded_modules(module)
        if root in of_module and len(of_module) > count:
            found, count = module, len(of_module)
    return found


def _under_way() -> Iterator[nn.Module]:
    """Yield the modules that are being called on this thread, inner ones first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_call_impl":
            module: Any = frame.f_locals.get("self")
            if hasattr(module, "named_modules"):
                yield module
        frame = frame.f_back


def name_of(model: nn.Module) -> str:
    """Return the name of a model's class, as it was before it was sharded or compiled."""
    from torch.distributed.fsdp import FSDPModule

    inner: Any = getattr(model, "_orig_mod", model)
    return next(kind for kind in type(inner).__mro__ if not issubclass(kind, FSDPModule)).__name__
