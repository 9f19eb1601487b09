"""Sets a process up before it imports torch, and those that it starts.

begin() --> torch is there: DDP and FSDP2 are patched now
        --> else a finder waits for each one's module and patches it when it has been imported
        --> PYTHONPATH: a folder whose sitecustomize.py does the same in child processes
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..tracing.options import ASKING, BUCKET_CAP_MB
from . import ending, patches, sharded
from .patches import DDP, FSDP

FOLDER = str(Path(__file__).with_name("python_path"))
"""For PYTHONPATH: its ``sitecustomize`` sets a process up."""

Patch = Callable[[ModuleType], object]
"""Given one of torch's modules, of which little more has been imported by now."""

_begun: list[bool] = []


def begin(name: str = "hooktrace", *, telemetry: bool = False) -> None:
    """Have all DDP models of this process and of its children traced, and all sharded ones.

    A second call does nothing.

    ``name``: of the run's folder, where no exporter is asked for.  ``telemetry``: export to
    OpenTelemetry too then.
    """
    if _begun:
        return
    _begun.append(True)
    paths = os.environ.get("PYTHONPATH")  # of children
    if FOLDER not in (paths or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = FOLDER if not paths else f"{FOLDER}{os.pathsep}{paths}"
    if ending.MEASURED in os.environ:
        from . import tuning

        wanted = tuning.PATCHES
    else:
        wanted = {DDP: _patch_ddp, FSDP: _patch_fsdp}
        if os.environ.keys().isdisjoint(ASKING):
            # Of its own, as a sweep starts several in one second; a child may work elsewhere.
            own = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"
            if ending.DEFAULT_DIR not in os.environ:
                os.environ[ending.DEFAULT_DIR] = folder = f"runs/{name}-{own}"
                with suppress(FileNotFoundError):  # started where no directory is any more
                    os.environ[ending.DEFAULT_DIR] = os.path.abspath(folder)
            if telemetry:
                os.environ["HOOKTRACE_OPENTELEMETRY"] = "1"
        ending.watch()
    waited: dict[str, Patch] = {}
    for module, patch in wanted.items():
        if module in sys.modules:
            patch(sys.modules[module])
        else:
            waited[module] = patch
    if waited:
        sys.meta_path.insert(0, _Finder(waited))


class _Finder:
    """Finds modules, as the others do, and has them patched; for all else it knows nothing."""

    def __init__(self, waited: dict[str, Patch]) -> None:
        self._waited = waited

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for, once."""
        patch = self._waited.pop(name, None)
        if patch is None:
            return None
        if not self._waited:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            loader.exec_module = functools.partial(_execute, loader.exec_module, patch)
        return spec


def _execute(execute: Patch, patch: Patch, module: ModuleType) -> None:
    execute(module)
    patch(module)


def _patch_ddp(module: ModuleType) -> None:
    """Have models known when they are made."""
    ddp = module.DistributedDataParallel
    if BUCKET_CAP_MB.variable in os.environ:
        patches.make_with_cap(ddp, BUCKET_CAP_MB.read)
    patches.when_made(ddp, _know)


def _know(ddp: Any) -> None:
    from .models import know

    know(ddp)


def _patch_fsdp(module: ModuleType) -> None:
    """Have sharded models known when they are called first."""
    sharded.watch(module, sharded.trace_from)
