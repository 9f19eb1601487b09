"""The tags of TensorBoard's scalars and histograms: their groups, and what each means.

A group comes before the groups whose names it begins: what one looks at first is in the model's
own, ``hooktrace.<model>``, errors in ``.error``, all else in ``.more``.
"""

from __future__ import annotations

import re

from ..records import metrics

FIRST = ("exposed_ms", "overlap_ratio", "step_period_ms")
COMPARED = (*FIRST, "wire_bytes")
"""What a table of runs compares."""

_TEXTS = ("layout", "anomalies", "hangs")

MEANINGS = (
    ("exposed_ms", metrics.EXPOSED.help),
    ("overlap_ratio", "Share of a step's communication that the backward pass hid."),
    ("step_period_ms", metrics.STEP_PERIOD.help),
    ("busbw_GBps", "Bus bandwidth of a step, as nccl-tests defines it."),
    ("gradient_bytes", "Bytes of gradients that a step gave to the hook."),
    ("wire_bytes", "Bytes of payload that this rank gave to collectives in a step."),
    ("compression_ratio", "Gradient bytes over wire bytes."),
    ("anomalies_total", "Things that went wrong in a hook so far; of each bucket the first."),
    ("error_bucket*", metrics.BUCKET_ERROR.help),
    ("cosine_bucket*", metrics.BUCKET_COSINE.help),
    ("residual_bucket*", "Norm of what error feedback keeps for the next step."),
    ("arrival_lag_ms", metrics.ARRIVAL_LAG.help),
    ("bucket_ms", metrics.BUCKET_DURATION.help),
    ("stage_*_ms", "Time of a bucket in one stage."),
)
_MEANING = dict(MEANINGS)


def group_of(model: str) -> str:
    """Return a model's group: TensorBoard groups by what is before a slash."""
    return "hooktrace." + model.replace("%", "%25").replace("/", "%2F")


def tag_of(group: str, name: str) -> str:
    """Return the tag of a name in a model's group."""
    if name in FIRST or name in _TEXTS:
        return f"{group}/{name}"
    return f"{group}.{'error' if '_bucket' in name else 'more'}/{name}"


def meaning_of(tag: str) -> str:
    """Return what a scalar's tag means; empty for one of no model."""
    return _MEANING.get(re.sub(r"\d+$", "*", tag.rpartition("/")[2]), "")
