"""What torch's Flight Recorder lists; of all ranks, side by side: ``test_diagnosis.py``."""

from __future__ import annotations

import json
from typing import Any

from hooktrace.ranks.hang.collectives import Collectives, PendingCollective, collectives


def entry(**more: Any) -> dict[str, Any]:
    """An entry as torch 2.13 writes it for gloo."""
    return {
        "collective_seq_id": 7,
        "input_sizes": [[10, 3]],
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": False,
        "state": "scheduled",
        **more,
    }


def dumped(*entries: dict[str, Any]) -> Any:
    status = {number: {"last_enqueued_collective": "7"} for number in ("0", "1", "2")}
    return lambda *_: json.dumps({"entries": entries, "pg_status": status}).encode()


def test_what_is_pending_and_the_last_one_issued_in_each_group() -> None:
    """By the groups' names: each process numbers those it is in.  Hooktrace's own have none."""
    mesh = entry(pg_id=1, process_group=["3", "mesh_dp"], collective_seq_id=2)
    own = entry(pg_id=2, process_group=["", ""])
    ended = entry(retired=True), entry(state="completed")
    assert collectives([dumped(entry(), mesh, own, *ended)]) == Collectives(
        (
            PendingCollective("0", "default_pg", 7, "all_reduce", 30),
            PendingCollective("3", "mesh_dp", 2, "all_reduce", 30),
        ),
        {"0": 7, "3": 7},
    )


def test_without_a_recorder() -> None:
    """Nothing is known then: no function, one that raises, one that is switched off."""

    def raises(*_: bool) -> bytes:
        raise RuntimeError("no such thing")

    for dumps in ([], [raises], [lambda *_: b"{}"], [dumped({"pg_id": 0})]):
        assert collectives(dumps) is None
