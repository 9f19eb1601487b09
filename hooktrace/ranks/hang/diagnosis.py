"""Why ranks wait, from what all of them said twice: a pure function of two rounds of answers.

two Rounds --snapshot.py--> Snapshot --rules.py--> Finding --> Hang
"""

from __future__ import annotations

from dataclasses import replace

from ...records.hang import hang_kind
from ..channel.messages import Silent
from .messages import Hang
from .rules import first_that_fits
from .snapshot import Finding, Round, Snapshot, snapshot
from .status import RankStatus


def diagnose(first: Round, last: Round, world_size: int) -> Hang | None:
    """Return why ranks wait; ``None`` where none does, or what they wait for moves.

    ``first``, ``last``: about a second apart; what moved between them is no hang.
    """
    seen = snapshot(first, last, world_size)
    found = None if seen is None else first_that_fits(seen)
    return None if seen is None or found is None else _concluded(seen, *found)


def waits_without_hub(own: RankStatus, hub: Silent, world_size: int) -> Hang | None:
    """Return why this rank's call waits, as far as it knows alone; ``None`` where none does.

    Or where the hub has no part in the call.  Nobody asks all ranks while the hub is gone, nor
    needs to: DDP does not go on without rank 0.
    """
    here = Round.of([own], [hub])
    seen = snapshot(here, here, world_size)
    if seen is None or seen.call is None or hub.rank not in seen.silent:
        return None
    alone = replace(seen, silent={hub.rank: hub})  # nobody asked the others
    found = first_that_fits(alone)
    return None if found is None else _concluded(alone, *found)


def _concluded(seen: Snapshot, kind: str, found: Finding) -> Hang:
    front = seen.front
    excused = [one.number for one in seen.ranks if one.is_excused]
    return Hang(
        kind=kind,
        model=front.model,
        hook=front.hook,
        step=front.step,
        bucket=front.bucket,
        ranks=tuple(sorted(found.ranks)),
        waiting=tuple(sorted(one.number for one in seen.waiting)),
        age_ns=seen.age_ns,
        message=f"{seen.opening}{found.text}; {hang_kind(kind).remedy_of(front.unit)}",
        excused=kind == "busy" and all(rank in excused for rank in found.ranks),
        unit=front.unit,
        order=front.order,
    )
