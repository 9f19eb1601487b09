"""Sets a process up before it imports torch, and those that it starts.

begin() --> torch is there: DDP and FSDP2 are patched now
        --> else a finder waits for each one's module and patches it when it has been imported
        --> PYTHONPATH: a folder whose sitecustomize.py does the same in child processes
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..tracing.options import ASKING, BUCKET_CAP_MB
from . import chosen, ending, sharded
from .tuning.plan import MEASURED, cap_of

logger = logging.getLogger("hooktrace")

_DDP = "torch.nn.parallel.distributed"
_FSDP = "torch.distributed.fsdp"
_OPTIMIZERS = "torch.optim.optimizer"
FOLDER = str(Path(__file__).with_name("python_path"))
"""For PYTHONPATH: its ``sitecustomize`` sets a process up."""

_undo: list[Callable[[], object]] = []


def begin(name: str = "hooktrace", *, telemetry: bool = False) -> None:
    """Have all DDP models of this process and of its children traced, and all sharded ones.

    A second call does nothing.

    ``name``: of the run's folder, where no exporter is asked for.  ``telemetry``: export to
    OpenTelemetry too then.
    """
    if _undo:
        return
    is_tuned = MEASURED in os.environ
    if not is_tuned and os.environ.keys().isdisjoint(ASKING):
        os.environ.setdefault(ending.DEFAULT_DIR, f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}")
        if telemetry:
            os.environ["HOOKTRACE_OPENTELEMETRY"] = "1"
    _reach_children()
    if not is_tuned:
        ending.watch()
    waited: dict[str, Callable[[ModuleType], None]] = {}
    patches: dict[str, Callable[[ModuleType], None]] = {_DDP: _patch, _FSDP: _patch_fsdp}
    if is_tuned:
        from .tuning.watch import refuse_others

        patches[_OPTIMIZERS] = refuse_others
    for module, patch in patches.items():
        if module in sys.modules:
            patch(sys.modules[module])
        else:
            waited[module] = patch
    if waited:
        finder = _Finder(waited)
        sys.meta_path.insert(0, finder)
        _undo.append(finder.leave)


def end() -> None:
    """Trace no models that are made from now on, here and in children."""
    while _undo:
        _undo.pop()()


def _reach_children() -> None:
    paths = os.environ.get("PYTHONPATH")
    if FOLDER not in (paths or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = FOLDER if not paths else f"{FOLDER}{os.pathsep}{paths}"
    _undo.append(_leave_children)


def _leave_children() -> None:
    left = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p != FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join(left)
    if not left:
        del os.environ["PYTHONPATH"]


class _Finder:
    """Finds modules, as the others do, and has them patched; for all else it knows nothing."""

    def __init__(self, waited: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waited = waited

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for, once."""
        patch = self._waited.pop(name, None)
        if patch is None:
            return None
        if not self._waited:
            self.leave()
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            loader.exec_module = functools.partial(_execute, loader.exec_module, patch)
        return spec

    def leave(self) -> None:
        """Find nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _execute(
    execute: Callable[[ModuleType], None],
    patch: Callable[[ModuleType], None],
    module: ModuleType,
) -> None:
    execute(module)
    patch(module)


def _patch_fsdp(module: ModuleType) -> None:
    """Have sharded models known when they are called first."""
    settled = sharded.trace_from
    if MEASURED in os.environ:
        from .tuning.watch import called as settled
    try:
        _undo.append(sharded.watch(module, settled))
    except Exception:  # whatever it is, the script goes on
        logger.exception("sharded models are not traced; training goes on")


def _patch(module: ModuleType) -> None:
    """Have models known when they are made; torch is imported only half by now."""
    from ..tracing import export

    ddp, is_tuned = module.DistributedDataParallel, MEASURED in os.environ
    export.is_measured = is_tuned
    make_reducer = getattr(ddp, "_ddp_init_helper", None)
    if make_reducer is None:
        logger.warning("this version of torch makes DDP models in a way that hooktrace cannot see")
        return

    @functools.wraps(make_reducer)
    def _ddp_init_helper(self: Any, *args: Any, **options: Any) -> Any:
        result = make_reducer(self, *args, **options)
        try:
            from . import models

            turns = None
            if is_tuned:
                from .tuning.watch import made

                turns = made(self)
            if turns is not None or not is_tuned:  # else the model stays as it is
                models.patch(ddp)
                models.know(self, turns)
        except Exception:  # whatever it is, the script goes on
            logger.exception("a DDP model is not traced; training goes on")
        return result

    if is_tuned:
        from .tuning.watch import patch_forward

        chosen.make_with_cap(ddp, cap_of)
        patch_forward(ddp)
    elif BUCKET_CAP_MB.variable in os.environ:
        chosen.make_with_cap(ddp)
    ddp._ddp_init_helper = _ddp_init_helper
    _undo.append(lambda: setattr(ddp, "_ddp_init_helper", make_reducer))
