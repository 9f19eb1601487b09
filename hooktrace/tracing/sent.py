"""What the hooks of a step sent, where not each call's stages say it.

    a plain hook's calls --what torch's process groups told of each--> SentInStep, for the records

From torch 2.14 on they tell of every collective; before, it is not known.  A recorder of torch's
own, the Flight Recorder, is private, often off, and forgets the step in a busy job: it is asked
only what a hang is about (``ranks/hang/collectives.py``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..records import Transfer
from ..staging import group_hooks
from ..staging.calls import BucketCall, Collective, joined
from ..staging.driver import PlainRun

Sent = tuple[Transfer, ...] | None
"""What was sent, by collective and dtype; ``None`` where it cannot be known."""


class SentInStep(NamedTuple):
    """What each call sent, and what all of them together did; ``why``: that is not known."""

    of_calls: Sequence[Sent]
    of_step: Sent
    why: str | None = None


_OLDER = "torch before 2.14 does not tell"  # short: it is in each step
_INSIDE = "a plain hook inside another, or what has no size, does not tell"
_UNSEEN = (
    "torch's process groups tell of no collective of the hook: it sends nothing, or by other ways"
)


def sent_in_step(calls: Sequence[BucketCall]) -> SentInStep:
    """Return what each call of a step sent, and all of them, where their stages do not say it."""
    nothing: list[Sent] = [None] * len(calls)
    unseen = [call for call in calls if not call.staged and call.unknown is None]
    if not unseen or calls[0].slot.unit is not None:
        return SentInStep(nothing, None)
    if not all(isinstance(call, PlainRun) for call in unseen):
        return SentInStep(nothing, None, _INSIDE)
    if not group_hooks.available:
        return SentInStep(nothing, None, _OLDER)
    plain = [call for call in calls if isinstance(call, PlainRun) and call.is_watched]
    if len(plain) < len(calls):  # a model's first call comes before torch is asked to tell
        return SentInStep(nothing, None)
    for call in plain:
        if call.in_doubt or not call.seen:
            return SentInStep(nothing, None, call.in_doubt or _UNSEEN)
    transfers = [[_transfer(one.collective) for one in call.seen] for call in plain]
    whole = itertools.chain.from_iterable(transfers)
    return SentInStep([_summed(of_call) for of_call in transfers], _summed(whole))


def _transfer(collective: Collective) -> Transfer:
    kind, size, dtype, _ = collective
    return Transfer(collective=kind, dtype=joined(dtype), wire_bytes=size)


def _summed(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Return transfers with one entry for each collective and dtype."""
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in transfers:
        sums[transfer.collective, transfer.dtype] += transfer.wire_bytes
    return tuple(
        Transfer(collective=collective, dtype=dtype, wire_bytes=count)
        for (collective, dtype), count in sorted(sums.items())
    )
