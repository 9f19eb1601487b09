"""Which other models communicate while a model's steps last, as of a GAN's two.

    Timeline, model --models_beside--> names of the others

Nobody stamps what a process computes: it is what is left of a step without its model's own
communication, and where another model has its turn meanwhile, that one's collectives are in it.
"""

from __future__ import annotations

import numpy as np

from .columns import RankTrack
from .merge import Timeline


def models_beside(timeline: Timeline, model: str) -> tuple[str, ...]:
    """Return the models that a rank's hooks are called for in most of a model's steps."""
    found = (name for track in timeline.tracks for name in _in_steps(track, model))
    return tuple(dict.fromkeys(found))


def _in_steps(track: RankTrack, model: str) -> list[str]:
    """Return the models of which a bucket was ready between most steps of a model and the next."""
    steps, names = track.steps, dict.fromkeys(name for name, _ in track.models)
    begins = np.sort(steps.first_ready[track.is_of(steps, model)])
    found = []
    for name in names if len(begins) > 1 else ():
        called = np.sort(track.buckets.called[track.is_of(track.buckets, name)])
        before = np.searchsorted(called, begins)
        if name != model and np.count_nonzero(np.diff(before)) > (len(begins) - 1) / 2:
            found.append(name)
    return found
