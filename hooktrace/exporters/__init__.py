"""Exporters: records to backends, one file each.

    Batch (of the drain) --export()--> Prometheus, OpenTelemetry, TensorBoard, record files

The names are in ``__init__.pyi``.  An exporter is imported when it is first named, its backend's
library when it is made.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
