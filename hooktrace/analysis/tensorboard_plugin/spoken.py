"""One bucket in a sentence, for those who go through the bars by keyboard and hear them."""

from __future__ import annotations

from collections.abc import Iterable

from ...records.units import ms, named_ranks
from ..timeline import UNKNOWN, Ints
from .scene import RankScene, Scene
from .units import call_name
from .wait_words import wait_sentence

_MOST_STAGES = 4


def spoken(
    scene: Scene, own: RankScene, at: int, stages: Iterable[tuple[str, int]], wires: Ints
) -> str:
    """Return who, when and how long, then the stages, the longest first.

    ``at``: the bucket's place among the rank's; ``stages``: name and ns of each of its stages;
    ``wires``: those on the wire, rows of the track's stages.
    """
    spent: dict[str, int] = {}
    for name, ns in stages:
        spent[name] = spent.get(name, 0) + ns
    longest = sorted(spent.items(), key=lambda one: -one[1])[:_MOST_STAGES]
    parts = [
        f"{name} {ms(ns)}" + (_of_which(scene, own, wires) if name == "wire" else "")
        for name, ns in longest
        if ns > 0
    ]
    total = int(own.buckets.end[at] - own.buckets.start[at])
    row = int(own.buckets.row[at])
    exposed = int(own.track.buckets.exposed[row])
    if exposed != UNKNOWN:
        parts.insert(0, "all of it exposed" if exposed >= total else f"{ms(exposed)} exposed")
    who = f"rank {own.rank}, step {own.step[at]}, {call_name(own.track, row)}"
    return f"{who}: {', '.join([ms(total), *parts])}"


def _of_which(scene: Scene, own: RankScene, wires: Ints) -> str:
    waited, named = own.waited[wires], own.waited_for[wires]
    if (waited == UNKNOWN).any() or not waited.sum():
        return f" ({wait_sentence(scene, own, wires)})"
    ranks = sorted(set(named[waited > 0].tolist()))
    whom = "" if UNKNOWN in ranks else f" for {named_ranks(ranks)}"
    return f", of which {ms(int(waited.sum()))} waiting{whom}"
