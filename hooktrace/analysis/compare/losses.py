"""The losses that training scripts wrote beside the record files, and by what two runs' differ.

event files --losses, of tags like loss--> Series a tag --loss_difference--> a mean over equal steps
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..run.dense import Floats
from .comparison import Difference
from .differences import paired

_LOSS = re.compile(r"(?<![a-z])loss(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of some steps in order: (steps,) each."""

    steps: Floats
    values: Floats


def losses(run: Path) -> dict[str, Series]:
    """Return the scalars of a run whose tag is like loss, by tag; none without tensorboard.

    Looked for under the logdir, or where the folder of the record files itself was given, beside
    it, but not in folders that have hooktrace's own event files alone (those of many ranks take
    long).
    """
    root = run.parent.parent if run.parts[-2:] == ("plugins", "hooktrace") else run
    theirs = [x for x in root.rglob("events.out.tfevents.*") if x.suffix != ".hooktrace"]
    endless = {path.parent for path in theirs if not path.is_file()}  # a pipe, a link to a device
    folders = sorted({path.parent for path in theirs} - endless)
    if not folders or find_spec("tensorboard") is None:
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Series] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in filter(is_loss, events.Tags()["scalars"]):
            rows = {one.step: one.value for one in events.Scalars(tag) if np.isfinite(one.value)}
            steps, values = np.array(sorted(rows.items()), np.float64).reshape(-1, 2).T
            found.setdefault(tag, Series(steps, values))
    return found


def is_loss(tag: str) -> bool:
    """Return whether a tag's last part, or the one before, is like loss, and not hooktrace's own.

    ``train/loss``, ``Loss/train``.
    """
    parts = tag.split("/")
    return parts[0] != "hooktrace" and any(_LOSS.search(part) for part in parts[-2:])


def loss_difference(
    a: dict[str, Series], b: dict[str, Series]
) -> tuple[str, Difference | None, str]:
    """Return the tag that is compared, the difference, or why there is none.

    Steps that both runs have, of these the later half: a loss falls, so only equal steps can be
    compared, and those at the end matter.  Training goes before validation.
    """
    shared = sorted(a.keys() & b.keys(), key=lambda tag: ("val" in tag or "eval" in tag, tag))
    if not shared:
        return "", None, _why_none(a, b)
    tag = shared[0]
    steps, at_a, at_b = np.intersect1d(a[tag].steps, b[tag].steps, return_indices=True)
    late = slice(len(steps) // 2, None)
    if not len(steps):
        return tag, None, f"the runs have no step in common that has {tag}"
    return tag, paired(a[tag].values[at_a][late], b[tag].values[at_b][late]), ""


def _why_none(a: dict[str, Series], b: dict[str, Series]) -> str:
    if find_spec("tensorboard") is None:
        return "tensorboard, which reads it, is not installed: pip install 'hooktrace[view]'"
    if not a and not b:
        return "no TensorBoard scalar like loss lies beside the record files"
    tags = [", ".join(sorted(side)) or "none" for side in (a, b)]
    return f"the runs have no tag in common: {'; '.join(tags)}"
