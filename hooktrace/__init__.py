"""hooktrace: instrumentation and debugging for PyTorch DDP communication hooks.

    trace(hook) --> DDP calls it with a bucket of gradients             tracing, hooks
      driver: the hook's operations, collective by collective           staging
        each moment is stamped; the ended call is pushed into a ring    capture
        on sampled steps: error, wire bytes, checks                     probes, ranks
    ring --> drain thread: calls --> records, steps                     tracing, records
      --> Tracer.steps(), summary()
      --> Prometheus, OpenTelemetry, TensorBoard, record files          exporters
    record files of all ranks --> columns                               analysis
      --> report, Perfetto file, TensorBoard's Comm Timeline
    fsdp.trace(model): the collectives of a sharded model, unit by unit fsdp
    every DDP model of a script that does not name it: hooktrace run    integrations
    the command line: hooktrace demo, report, export, check, bench      __main__, commands
    fakes, made-up runs, the check of a hook                            testing

The public names are listed in ``__init__.pyi`` and imported when they are first used, so that
``hooktrace.records`` and whatever else needs no torch can be imported without it.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

__version__ = "0.2.0"

_get, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hooktrace.{name} needs torch, which is not installed here; install it as its "
            "\"Get started\" page says, or pip install 'hooktrace[all]'",
            name="torch",
        ) from None
