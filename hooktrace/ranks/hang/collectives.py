"""Which collectives each rank has issued and waits for, as torch's Flight Recorder knows them.

    Flight Recorder, of gloo and NCCL --active entries--> Collectives, one a rank
    those of all ranks, side by side --the first group that tells--> Comparison

A process group goes by its name: its number may be another group's in other processes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec
import torch
import torch.distributed as dist

from ...records import Members
from ...records.units import named_ranks
from ...staging.groups import members_of

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Private functions of torch that write its recorders down, of all backends and of NCCL."""
_MOST = 32


class PendingCollective(msgspec.Struct, frozen=True, gc=False):
    """A collective that was issued and has not completed.

    ``group``: the process group's name, "0" of the default one; ``name``: its description;
    ``number``: the collective's place among that group's; ``numel``: elements of this rank's
    payload; ``members``: the group's ranks, ``None`` where that is not known.
    """

    group: str
    name: str
    number: int
    kind: str
    numel: int
    members: Members | None = None


class Collectives(msgspec.Struct, frozen=True, gc=False):
    """What is pending, and the number of the last collective of each group by the group's name."""

    pending: tuple[PendingCollective, ...]
    issued: dict[str, int]


def collectives(dumps: list[Callable[[bool, bool], bytes]] | None = None) -> Collectives | None:
    """Return what this process waits for; ``None`` where torch does not tell."""
    found: list[dict[str, Any]] = []
    for dump in _torchs() if dumps is None else dumps:
        with suppress(Exception):  # a private function, and a format without a promise
            found.append(json.loads(dump(True, True)))
    with suppress(Exception):
        return _read(found)
    return None


def _torchs() -> list[Callable[[bool, bool], bytes]]:
    module = getattr(torch._C, "_distributed_c10d", None)
    names = _DUMPS if torch.cuda.is_available() else _DUMPS[:1]
    return [getattr(module, name) for name in names if hasattr(module, name)]


def _read(dumps: list[dict[str, Any]]) -> Collectives | None:
    pending: list[PendingCollective] = []
    issued: dict[str, int] = {}
    for dump in dumps:
        names = {"0": "0"}
        for entry in dump.get("entries", ()):
            name = entry["process_group"][0]  # those of hooktrace's own have none
            if not name:
                continue
            names[str(entry["pg_id"])] = name
            if not entry["retired"] and entry["state"] != "completed":
                pending.append(_pending(entry))
        for number, status in dump.get("pg_status", {}).items():
            if number in names:
                issued[names[number]] = int(status["last_enqueued_collective"])
    return Collectives(tuple(pending[:_MOST]), issued) if issued else None


def _pending(entry: dict[str, Any]) -> PendingCollective:
    numel = sum(math.prod(size) for size in entry["input_sizes"])
    kind = entry["profiling_name"].partition(":")[2]
    (group, name), members = entry["process_group"], None
    torchs: Any = dist.distributed_c10d
    with suppress(Exception):  # of a group that is gone, and where torch has another name for it
        members = members_of(torchs._resolve_process_group(group))
    return PendingCollective(group, name, entry["collective_seq_id"], kind, numel, members)


class Comparison(NamedTuple):
    """What the pending collectives say; ``ranks``: those that are not where the others are.

    ``untold``: torch does not tell of a rank.  ``none``: no rank has one.  ``same``: all wait in
    the same one.  ``different``: in its place some issued another.  ``not_issued``: some have not
    come to it.  ``completed``: some had its result, others had not.
    """

    verdict: Literal["untold", "none", "same", "different", "not_issued", "completed"]
    ranks: tuple[int, ...] = ()
    text: str = ""


def compare(
    of_ranks: Mapping[int, Collectives | None], waiting: Collection[int] = ()
) -> Comparison:
    """Compare the oldest pending collective of each group.

    What ``waiting`` ranks wait in tells first: others may stand in other groups for them.
    """
    known = {rank: one for rank, one in of_ranks.items() if one is not None}
    if len(known) < len(of_ranks):
        return Comparison("untold")
    pending: dict[str, dict[int, PendingCollective]] = {}
    for rank, of_rank in known.items():
        for one in sorted(of_rank.pending, key=lambda one: -one.number):  # the lowest stays
            pending.setdefault(one.group, {})[rank] = one
    telling = ("different", "not_issued", "completed", "same")
    found = {group: _compare_group(group, pending[group], known) for group in sorted(pending)}

    def by_weight(group: str) -> tuple[bool, int]:
        return pending[group].keys().isdisjoint(waiting), telling.index(found[group].verdict)

    return found[min(found, key=by_weight)] if found else Comparison("none")


def _compare_group(
    group: str, here: Mapping[int, PendingCollective], known: Mapping[int, Collectives]
) -> Comparison:
    lowest = min(one.number for one in here.values())
    first = {rank: one for rank, one in here.items() if one.number == lowest}
    kinds = grouped({rank: _said(one) for rank, one in first.items()})
    issued = _issued(group, here, known)
    late = tuple(rank for rank, number in issued.items() if number < lowest)
    parties = "; ".join(f"{named_ranks(who)} in {kind}" for kind, who in kinds.items())
    where = f"{parties} of {_group(here)}, its collective {lowest}"
    if len(kinds) > 1:
        text = f"as collective {lowest} of {_group(here)} {parties}"
        return Comparison("different", tuple(outnumbered(kinds.values())), text)
    if late:
        text = f"{where}, which {named_ranks(late)} {have(late)} not issued"
        return Comparison("not_issued", late, text)
    others = tuple(rank for rank in issued if rank not in first)
    return Comparison("completed" if others else "same", others, where)


def grouped(said: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the ranks of which the same is said, by what that is."""
    found: dict[str, list[int]] = {}
    for rank, text in said.items():
        found.setdefault(text, []).append(rank)
    return found


def have(ranks: Sequence[int]) -> str:
    """Return the verb that follows some ranks."""
    return "has" if len(ranks) == 1 else "have"


def outnumbered(parties: Iterable[list[int]]) -> list[int]:
    """Return the party of the fewest ranks; nobody where two are as few, of which none is wrong."""
    first, second, *_ = sorted(parties, key=len)
    return first if len(first) < len(second) else []


def _issued(
    group: str, here: Mapping[int, PendingCollective], known: Mapping[int, Collectives]
) -> dict[int, int]:
    """Return what each rank of a group has issued last, -1 for nothing.

    Where nobody knows its ranks: of those that have issued something there.
    """
    members = next((one.members for one in here.values() if one.members is not None), None)
    told = {rank: of_rank.issued.get(group, -1) for rank, of_rank in known.items()}
    if members is not None:
        return {rank: told[rank] for rank in known if rank in range(*members)}
    return {rank: number for rank, number in told.items() if number >= 0 or rank in here}


def _said(one: PendingCollective) -> str:
    # The ranks' payloads of other kinds may differ.
    return f"{one.kind} of {one.numel:,} elements" if one.kind == "all_reduce" else one.kind


def _group(here: Mapping[int, PendingCollective]) -> str:
    name = next(iter(here.values())).name
    return "the default group" if name == "default_pg" else f"group {name!r}"
