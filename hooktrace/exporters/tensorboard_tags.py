"""The tags of TensorBoard's scalars and histograms: their groups, and what each means.

A group comes before the groups whose names it begins: what one looks at first is in the model's
own, ``hooktrace.<model>``, errors in ``.error``, all else in ``.more``.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from ..records import Unit, metrics

FIRST = ("exposed_ms", "overlap_ratio", "step_period_ms")

MEANINGS = (
    ("exposed_ms", metrics.EXPOSED.help),
    ("overlap_ratio", "Share of a step's communication that was not exposed."),
    ("step_period_ms", metrics.STEP_PERIOD.help),
    ("busbw_GBps", "Bus bandwidth of a step (nccl-tests), with its waits for late ranks."),
    ("gradient_bytes", "Bytes of gradients that a step gave to the hook."),
    ("payload_bytes", "Bytes of parameters and gradients that a sharded step communicated."),
    ("exposed_*_ms", "How long training waited for the units' collectives of one kind in a step."),
    ("wire_bytes", "Bytes of payload that this rank gave to collectives in a step."),
    ("compression_ratio", "Gradient bytes, of a sharded step payload bytes, over wire bytes."),
    ("anomalies_total", "Things that went wrong so far; of each bucket or unit the first."),
    ("error_bucket*", metrics.BUCKET_ERROR.help),
    ("error_unit.*", metrics.UNIT_ERROR.help),
    ("residual_*", "Norm of what error feedback keeps for the next step."),
    ("arrival_delay_ms", metrics.ARRIVAL_DELAY.help),
    ("bucket_ms", metrics.BUCKET_DURATION.help),
    ("unit_ms", "Time of a unit's collective from begun to done."),
    ("stage_*_ms", "Time of a bucket or unit in one stage."),
)
"""Names of tags, ``*`` for any part of them; the first that fits a tag says what it means."""


def group_of(model: str) -> str:
    """Return a model's group: TensorBoard groups by what is before a slash."""
    return "hooktrace." + model.replace("%", "%25").replace("/", "%2F")


def exposed_tag(unit: Unit) -> str:
    """Return the name of the exposed time of collectives of a unit's kind."""
    return f"exposed_{_kind(unit)}_ms"


def unit_tag(what: str, unit: Unit) -> str:
    """Return the name of a unit's ``error`` or ``residual``; a slash would group it."""
    name = unit.name.replace("%", "%25").replace("/", "%2F")
    return f"{what}_unit.{name}.{_kind(unit)}"


def _kind(unit: Unit) -> str:
    return f"all_gather_{unit.phase}" if unit.collective == "all_gather" else unit.collective


def tag_of(group: str, name: str) -> str:
    """Return the tag of a name in a model's group."""
    if name in (*FIRST, "assignment", "anomalies"):
        return f"{group}/{name}"
    is_error = name.startswith(("error_", "residual_"))
    return f"{group}.{'error' if is_error else 'more'}/{name}"


def meaning_of(tag: str) -> str:
    """Return what a scalar's tag means; empty for one of no model."""
    name = tag.rpartition("/")[2]
    return next((meaning for names, meaning in MEANINGS if fnmatchcase(name, names)), "")
