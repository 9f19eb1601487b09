"""What of a bucket's wire is waiting, in a sentence and in rows.

    Waits, rows of a bucket's wire stages --wait_sentence--> ``waits 12.0 ms for rank 2``

A number stands there only where it is known, and a rank only where the clocks tell it.
"""

from __future__ import annotations

from ...records.units import ms, named_ranks
from ..timeline import UNKNOWN, Ints, Waits
from .scene import RankScene, Scene

NO_COUNTERPART = "its collective was not found on all ranks"


def wait_sentence(scene: Scene, own: RankScene, wires: Ints) -> str | None:
    """Return what the collectives in some rows of the rank's stages waited; ``None`` of none."""
    if not len(wires):
        return None
    waited = own.waited[wires]
    if (waited == UNKNOWN).any():
        why = scene.waits.why_unknown or NO_COUNTERPART
        return f"how much of it is waiting is not known, because {why}"
    named = own.waited_for[wires]
    if not waited.sum():
        return _of_no_wait(own.rank, named.tolist())
    ranks = sorted(set(named[waited > 0].tolist()))
    told = f"waits {ms(int(waited.sum()))}"
    if UNKNOWN not in ranks:
        return f"{told} for {named_ranks(ranks)}"
    return f"{told}; {why_unnamed(scene.waits)}"


def why_unnamed(found: Waits) -> str:
    """Return why nobody is named for whom is waited."""
    if not found.by_clock:
        return "for which rank is not known, because not all clocks were measured"
    return "which rank is last is not told apart by the clocks"


def _of_no_wait(rank: int, named: list[int]) -> str:
    if set(named) == {rank}:
        return "waits for nobody: it is the last rank"
    return "waits for nobody, as far as the clocks tell"
