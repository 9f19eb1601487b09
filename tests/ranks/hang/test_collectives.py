"""What torch's Flight Recorder lists, and what is without one."""

from __future__ import annotations

import json
from typing import Any

from hooktrace.ranks.hang.collectives import PendingCollective, collectives


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


def dumped(*entries: dict[str, Any], **more: Any) -> Any:
    status = {"0": {"last_enqueued_collective": "7"}}
    return lambda *_: json.dumps({"entries": entries, "pg_status": status, **more}).encode()


def test_pending() -> None:
    """What has not completed, and the last one issued."""
    found = collectives([dumped(entry(), entry(retired=True), entry(state="completed"))])
    assert found is not None
    assert found.pending == (PendingCollective("0", "default_pg", 7, "all_reduce", 30),)
    assert found.issued == {"0": 7}


def test_groups_go_by_their_names() -> None:
    """Each process numbers those that it is in; a number without a collective has no name."""
    own = entry(pg_id=1, process_group=["3", "mesh_dp"], collective_seq_id=2)
    status = {number: {"last_enqueued_collective": "4"} for number in ("0", "1", "2")}
    found = collectives([dumped(own, pg_status=status)])
    assert found is not None
    assert [(one.group, one.name) for one in found.pending] == [("3", "mesh_dp")]
    assert found.issued == {"0": 4, "3": 4}


def test_hooktraces_own_groups() -> None:
    """They have no name, and are none of the user's."""
    found = collectives([dumped(entry(process_group=["", ""]))])
    assert found is not None
    assert found.pending == ()


def test_without_a_recorder() -> None:
    """Nothing is known then: no function, one that raises, one that is switched off."""

    def raises(*_: bool) -> bytes:
        raise RuntimeError("no such thing")

    assert collectives([]) is None
    assert collectives([raises]) is None
    assert collectives([lambda *_: b"{}"]) is None
    assert collectives([dumped({"pg_id": 0})]) is None
