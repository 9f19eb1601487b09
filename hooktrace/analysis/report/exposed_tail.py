"""What ends a step late: the exposed tail shared out over buckets, and what queued in it."""

from __future__ import annotations

import numpy as np

from .step_arrays import Floats, StepArrays, middle


def tails(arrays: StepArrays) -> Floats:
    """Return the exposed ns that each bucket adds, (ranks, steps, buckets).

    After the last bucket is ready the backend finishes what is left, one bucket after another; the
    time until a bucket is done, since the one before it was, is what that bucket adds.  A step's
    sum is its exposed time.
    """
    return np.stack(
        [_tails_of_rank(ready, done) for ready, done in zip(arrays.ready, arrays.done, strict=True)]
    )


def _tails_of_rank(ready: Floats, done: Floats) -> Floats:
    after = done - np.nanmax(ready, axis=1, initial=-np.inf, keepdims=True)
    left = np.where(np.isnan(after), 0.0, np.maximum(after, 0.0))
    order = np.argsort(left, axis=1, kind="stable")
    added = np.diff(np.take_along_axis(left, order, axis=1), axis=1, prepend=0.0)
    found: Floats = np.empty_like(left)
    np.put_along_axis(found, order, added, axis=1)
    return found


def tail_shares(arrays: StepArrays) -> Floats:
    """Return each bucket's share of the exposed time, (buckets,), over ordinary steps.

    Ordinary is the middle half of all by exposed time: the tail of a slow step has causes of its
    own.  Zeros where nothing is exposed.
    """
    added = tails(arrays)
    exposed = added.sum(axis=2)
    low, high = middle(exposed, 0.25), middle(exposed, 0.75)
    sums = added[(exposed >= low) & (exposed <= high)].sum(axis=0)
    total = float(sums.sum())
    found: Floats = sums / total if total > 0 else np.zeros(len(arrays.buckets))
    return found


def queued_ns(arrays: StepArrays) -> float | None:
    """Return the median, over ranks and steps, of min(exposed, queue of the bucket done last).

    Time in the queue costs nothing where it is hidden; what ends the step has waited for it.
    """
    queue = arrays.stages.get("queue")
    if queue is None:
        return None
    done = np.where(np.isnan(arrays.done), -np.inf, arrays.done)
    last = np.argmax(done, axis=2)[..., None]
    waited = np.take_along_axis(queue, last, axis=2)[..., 0]
    found = middle(np.minimum(waited, arrays.exposed))
    return None if np.isnan(found) else found
