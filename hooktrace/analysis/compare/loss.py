"""The loss, where the training script wrote it for TensorBoard beside the record files.

event files --EventAccumulator--> scalars --tags like loss--> Series a tag
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .comparison import Difference
from .differences import paired
from .measure import Series

_LOSS = re.compile(r"(?<![a-z])loss(?![a-z])", re.IGNORECASE)


def losses(run: Path) -> dict[str, Series]:
    """Return the scalars of a run whose tag is like loss, by tag; none without tensorboard.

    Looked for under the logdir, or where the folder of the record files itself was given, beside
    it, but not in folders that have hooktrace's own event files alone.  A tag is like loss where
    its last part is, or where the part before it is: ``train/loss``, ``Loss/train``.
    """
    folders = list(_folders(run))
    if not folders or not _has_tensorboard():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Series] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if is_loss(tag):
                rows = {event.step: event.value for event in events.Scalars(tag)}
                steps = sorted(step for step, value in rows.items() if np.isfinite(value))
                values = [float(rows[step]) for step in steps]
                found.setdefault(tag, Series(np.array(steps, np.float64), np.array(values)))
    return found


def is_loss(tag: str) -> bool:
    """Return whether a tag is like loss, and not hooktrace's own."""
    parts = tag.split("/")
    return parts[0] != "hooktrace" and any(_LOSS.search(part) for part in parts[-2:])


def _folders(run: Path) -> Iterator[Path]:
    root = run.parent.parent if run.name == "hooktrace" and run.parent.name == "plugins" else run
    files = root.rglob("events.out.tfevents.*")
    theirs = [path for path in files if not path.name.endswith(".hooktrace")]
    endless = {path.parent for path in theirs if not path.is_file()}  # a pipe, a link to a device
    yield from sorted({path.parent for path in theirs} - endless)


def loss_difference(
    a: dict[str, Series], b: dict[str, Series]
) -> tuple[str, Difference | None, str | None]:
    """Return the tag that is compared, the difference, or why there is none.

    Steps that both runs have, of these the later half: a loss falls, so only equal steps can be
    compared, and those at the end matter.
    """
    shared = sorted(a.keys() & b.keys(), key=lambda tag: ("val" in tag or "eval" in tag, tag))
    if not shared:
        return "", None, _why_none(a, b)
    tag = shared[0]
    steps, at_a, at_b = np.intersect1d(a[tag].steps, b[tag].steps, return_indices=True)
    late = slice(len(steps) // 2, None)
    if not len(steps):
        return tag, None, f"the runs have no step in common that has {tag}"
    return tag, paired(a[tag].values[at_a][late], b[tag].values[at_b][late]), None


def _has_tensorboard() -> bool:
    return find_spec("tensorboard") is not None


def _why_none(a: dict[str, Series], b: dict[str, Series]) -> str:
    if not _has_tensorboard():
        return "tensorboard, which reads it, is not installed: pip install 'hooktrace[view]'"
    if not a and not b:
        return "no TensorBoard scalar like loss lies beside the record files"
    if a and b:
        return f"the runs have no tag in common: {', '.join(sorted(a))}; {', '.join(sorted(b))}"
    return f"only one of the runs has a scalar like loss: {', '.join(sorted(a or b))}"
