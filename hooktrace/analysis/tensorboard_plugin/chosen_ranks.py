"""Some of the ranks, and their lanes as strips: what is asked for of a run with many.

    "0-7,12" --ranks_of--> ranks        Scene, ranks --of_ranks--> Scene with these alone
    Scene --as_strips--> Scene in which a rank has one row for all its buckets

Detail is bounded for a picture as a whole: what is out of sight takes none from what is in sight.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from .scene import RankScene, Scene

_MOST = 100_000
"""Ranks that a text may name."""


def ranks_of(text: str) -> frozenset[int] | None:
    """Return the ranks that "0-7,12" names; ``None``, for all, of "".

    Raises ``ValueError`` for what is no such list.
    """
    if not text:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if match is None:
            raise ValueError("ranks is not a list such as 0-7,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if len(found) + last - first > _MOST:
            raise ValueError("ranks names too many")
        found.update(range(first, last + 1))
    return frozenset(found)


def of_ranks(scene: Scene, ranks: Collection[int] | None) -> Scene:
    """Return a scene with some of its ranks; ``None``: with all of them."""
    if ranks is None:
        return scene
    return replace(scene, ranks=[one for one in scene.ranks if one.rank in ranks])


def as_strips(scene: Scene) -> Scene:
    """Return a scene in which each rank has one row."""
    return replace(scene, lanes=1, ranks=[_strip(one) for one in scene.ranks])


def _strip(rank: RankScene) -> RankScene:
    hangs = [replace(bar, lane=None if bar.lane is None else 0) for bar in rank.hangs]
    return replace(rank, lane=np.zeros(len(rank.lane), np.int64), hangs=hangs)
