"""What OpenTelemetry's launcher finds: ``opentelemetry-instrument torchrun ... train.py``.

    entry point opentelemetry_instrumentor --> HooktraceInstrumentor().instrument() --> start.begin

The launcher instruments the process that it starts, before anything is imported, and not that one's
children: those are hooktrace's own affair.  It needs no package of OpenTelemetry's here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from . import start


class HooktraceInstrumentor:
    """Has every DDP model of the process and its children traced, as ``hooktrace run`` does.

    It has what callers use of OpenTelemetry's ``BaseInstrumentor``.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what is instrumented, as requirements."""
        return ("torch >= 2.10",)

    def instrument(self, **options: Any) -> None:
        """Trace the models that are made from now on; options are for other instrumentors."""
        start.begin(telemetry=True)

    def uninstrument(self, **options: Any) -> None:
        """Do nothing: what is traced stays so until the process ends."""
