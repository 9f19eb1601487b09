"""Which collectives this process has issued and waits for, as torch's Flight Recorder knows them.

    torch's Flight Recorder, of gloo and NCCL --active entries--> PendingCollective, one each

Where this torch has none, or it is switched off (``TORCH_FR_BUFFER_SIZE=0``), nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import torch

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""Private functions of torch that write its recorders down, of all backends and of NCCL."""
_MOST = 32


class PendingCollective(msgspec.Struct, frozen=True, gc=False):
    """A collective that was issued and has not completed.

    ``group``: the process group's number in its process, 0 the default one, and ``name``;
    ``number``: the collective's place among that group's; ``kind``: as torch calls it,
    ``all_reduce``; ``numel``: elements of this rank's payload.
    """

    group: str
    name: str
    number: int
    kind: str
    numel: int


class Collectives(msgspec.Struct, frozen=True, gc=False):
    """What is pending, and the number of the last collective of each group by the group's."""

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
        for entry in dump.get("entries", ()):
            named = bool(entry["process_group"][0])  # those of hooktrace's own have no name
            if named and not entry["retired"] and entry["state"] != "completed":
                pending.append(_pending(entry))
        for group, status in dump.get("pg_status", {}).items():
            issued[group] = int(status["last_enqueued_collective"])
    return Collectives(tuple(pending[:_MOST]), issued) if issued else None


def _pending(entry: dict[str, Any]) -> PendingCollective:
    numel = 0
    for size in entry["input_sizes"]:
        elements = 1
        for length in size:
            elements *= length
        numel += elements
    kind = entry["profiling_name"].partition(":")[2]
    group, name = str(entry["pg_id"]), entry["process_group"][1]
    return PendingCollective(group, name, entry["collective_seq_id"], kind, numel)
