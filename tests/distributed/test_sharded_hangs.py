"""Real ranks of sharded models that wait for ever: the unit is named, and who is at what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.distributed import sharded_hang_scenarios as scenarios
from tests.distributed.test_hangs import dumped, read, told

pytestmark = pytest.mark.slow

Scenario = Callable[[int], None]

NEXT_GATHER = "blocks.2 all-gather (forward) of step 3 has waited "
ROOT_GATHER = "<root> all-gather (forward) of step 3 has waited "


@pytest.mark.parametrize(
    ("scenario", "kind", "said"),
    [
        (
            scenarios.raised,
            "raised",
            (
                "blocks.2 all-gather (backward) of step 3 has waited ",
                "which raised ValueError: a bad batch at sharded_hang_scenarios.py:",
            ),
        ),
        (scenarios.leaves, "uneven_inputs", (ROOT_GATHER, "; give all ranks as many batches")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_for_whom_a_unit_waits(
    scenario: Scenario,
    kind: str,
    said: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One rank is the reason; the unit is told by its name, as of no bucket."""
    record = told(scenario, tmp_path, monkeypatch)[0][0]
    assert (record.kind, record.ranks, record.waiting) == (kind, (1,), (0,)), record.message
    assert record.message.startswith(said[0]), record.message
    assert said[1] in record.message, record.message
    assert said[0].startswith(record.unit)
    assert "bucket" not in record.message
    assert "ddp" not in record.message


def test_ranks_that_run_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait, each in a unit of its own, which is the same place of the step; none is blamed."""
    record = told(scenarios.skips_a_unit, tmp_path, monkeypatch)[0][0]
    assert (record.kind, record.ranks) == ("different_collectives", ()), record.message
    assert record.waiting == (0, 1)
    assert ": as the 6th collective of the step these do not match" in record.message
    said = (
        "rank 1 made as the 3rd blocks.2 all-gather (forward), where step 2 had blocks.1 "
        "all-gather (forward); have all ranks run the same modules"
    )
    assert said in record.message, record.message


def test_an_evaluation_that_one_does_not_come_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is gathered there is of no step and no unit's record; it is seen all the same."""
    record = told(scenarios.in_evaluation, tmp_path, monkeypatch)[0][0]
    assert (record.kind, record.ranks, record.unit) == ("busy", (1,), ""), record.message
    assert record.message.startswith("rank 0 waits in all_gather in `sharded_hang_scenarios.py:")


def test_a_replica_of_which_one_rank_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gathers with it is said to wait; the other replica has a group of its own."""
    record = told(scenarios.replica_stopped, tmp_path, monkeypatch, ranks=4)[0][0]
    assert (record.kind, record.ranks, record.waiting) == ("stopped", (3,), (2,)), record.message
    assert record.message.startswith(f"{NEXT_GATHER}")


def test_replicas_that_do_not_reduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP issues that all-reduce itself; it is named while it waits."""
    record = told(scenarios.all_reduce_lacks, tmp_path, monkeypatch, ranks=4)[0][0]
    assert record.kind == "different_collectives", record.message
    assert record.unit == "blocks.2 all-reduce (backward)"
    (waiting,), (lacking,) = record.waiting, record.ranks
    assert lacking == waiting + 2  # with whom it shares its part
    assert f"which rank {lacking} has not issued" in record.message


def test_a_rank_that_is_busy_in_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and the file of each rank says in which unit it is."""
    waits, late = dumped(scenarios.dumps, tmp_path, monkeypatch)
    record = read(tmp_path / "0")[0]
    assert (record.kind, record.ranks, record.waiting) == ("busy", (1,), (0,)), record.message
    assert record.message.startswith(NEXT_GATHER), record.message
    assert "for_ever`, 1 collective behind;" in record.message, record.message
    assert waits.startswith(NEXT_GATHER)
    assert "net: step 3, blocks.2 all-gather (forward)\n  blocks.2 all-gather (forward) of" in waits
    assert "net: step 3, blocks.1 all-gather (forward)\n" in late
