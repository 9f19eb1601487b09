"""Which collectives this process has issued and waits for, as torch's Flight Recorder knows them.

    torch's Flight Recorder, of gloo and NCCL --active entries--> PendingCollective, one each

Where this torch has none, or it is switched off (``TORCH_FR_BUFFER_SIZE=0``), nothing is known.
A process group goes by its name: each process numbers those that it is in by itself, so that one
group's number may be another one's elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from ...records import Members
from ...staging.groups import members_of

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Private functions of torch that write its recorders down, of all backends and of NCCL."""
_MOST = 32


class PendingCollective(msgspec.Struct, frozen=True, gc=False):
    """A collective that was issued and has not completed.

    ``group``: the process group's name, the same on all its ranks, "0" of the default one;
    ``name``: what it was described as; ``number``: the collective's place among that group's;
    ``kind``: as torch calls it, ``all_reduce``; ``numel``: elements of this rank's payload;
    ``members``: the ranks of the job that are in the group, ``None`` where that is not known.
    """

    group: str
    name: str
    number: int
    kind: str
    numel: int
    members: Members | None = None


class Collectives(msgspec.Struct, frozen=True, gc=False):
    """What is pending, and the number of the last collective of each group by the group's name.

    Of groups of which the recorder has no collective there is no number.
    """

    pending: tuple[PendingCollective, ...]
    issued: dict[str, int]


def collectives(dumps: list[Callable[[bool, bool], bytes]] | None = None) -> Collectives | None:
    """Return what this process waits for; ``None`` where torch does not tell."""
    found: list[dict[str, Any]] = []
    for dump in _torchs() if dumps is None else dumps:
        try:
            found.append(json.loads(dump(True, True)))
        except Exception:  # a private function, and a format without a promise
            continue
    try:
        return _read(found) if found else None
    except Exception:
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


def _members(name: str) -> Members | None:
    """Return the ranks of a process group that this process is in; ``None``: they are not known."""
    torchs: Any = dist.distributed_c10d
    try:
        return members_of(torchs._resolve_process_group(name))
    except Exception:  # of a group that is gone, and where torch has another name for it
        return None


def _pending(entry: dict[str, Any]) -> PendingCollective:
    numel = sum(math.prod(size) for size in entry["input_sizes"])
    kind = entry["profiling_name"].partition(":")[2]
    group, name = entry["process_group"]
    return PendingCollective(group, name, entry["collective_seq_id"], kind, numel, _members(group))
