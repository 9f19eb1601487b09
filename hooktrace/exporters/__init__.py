"""Exporters: batches of records to backends.

    Batch --export()--+--> record_file, record_parts      JSON lines, a file a rank
    (of the drain)    +--> tensorboard*, event_file       event files
                      +--> prometheus*                    answers to scrapes
                      +--> opentelemetry, otel_*          OTLP, or the application's providers

    base            what the drain needs of an exporter: two methods
    retention       which steps are kept in detail, in record files and as spans
    observations    a batch as values of the metrics table
    aggregates      those added up for the last two
    append_file     whole blocks or nothing, for files

The names are in ``__init__.pyi``.  An exporter is imported when it is first named, its backend's
library when it is made.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
