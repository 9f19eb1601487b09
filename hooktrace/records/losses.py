"""The one table of what is lost: the reason, what it means, and what to do.

``LOSSES`` is what the warnings of a tracer, the metric ``hooktrace_records_lost`` and the docs
follow.  What exporters lose by themselves is counted after their name.
"""

from __future__ import annotations

from typing import NamedTuple


class LossReason(NamedTuple):
    """One reason; ``sentence``: what is the case, and ``fix``: what to do."""

    name: str
    sentence: str
    fix: str


_TABLE = (
    LossReason(
        "ring_full",
        "the export thread did not keep up",
        "pass Tracer(ring_capacity=...) a larger number or use fewer exporters",
    ),
    LossReason(
        "unfinished",
        "their futures had not completed when a later step had, or the tracer was closed",
        "close it after the last backward pass has returned; else look for a hook whose future "
        "does not belong to its bucket",
    ),
    LossReason(
        "not_exported",
        "an exporter was disabled; counted once for each such exporter",
        "its own message says why",
    ),
    LossReason(
        "stamp_failed",
        "something raised while hook calls were stamped, whose times are unknown now; training is "
        "not affected",
        "a call inside a captured graph is never timed; else look at the clock that Tracer was "
        "given, at the device, or at the operation's describe()",
    ),
    LossReason(
        "device_unresolved",
        "the device had not passed their events",
        "synchronise it before close()",
    ),
    LossReason(
        "check_failed",
        "an error was not measured, as where a rank came too late for it",
        "all are asked again at the next one",
    ),
    LossReason(
        "step_too_long",
        "a sharded model's step did not end: what comes after 16384 collectives is not recorded",
        "a step ends with a backward pass that reduces gradients; put torch.no_grad() around "
        "passes that are no training",
    ),
    LossReason(
        "internal_error",
        "a defect of hooktrace; export cycles are counted, not records; training is not affected",
        "please report it with the traceback in the log",
    ),
)

LOSSES = {loss.name: loss for loss in _TABLE}
"""By name; these and the exporters' own below are counted from 0 on."""

LOSSES_OF_EXPORTERS = {
    "record_file": ("buckets",),
    "opentelemetry": ("spans", "metric_exports"),
}
"""What exporters lose by themselves, by their name: ``record_file_buckets`` is a reason too."""
