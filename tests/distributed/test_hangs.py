"""Real ranks that wait for ever: each kind of hang is told by its name, with who is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from hooktrace.records import HangRecord
from hooktrace.tracing.hangs import EXIT_CODE
from tests.distributed import hang_scenarios as scenarios
from tests.distributed.harness import Group, here, name_of

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0

Told = dict[int, list[HangRecord]]


@contextmanager
def begun(
    scenario: Callable[[int], None], folder: Path, monkeypatch: pytest.MonkeyPatch, ranks: int = 2
) -> Iterator[Group]:
    """Ranks that are in a scenario, and are killed afterwards."""
    monkeypatch.setenv("HOOKTRACE_TEST_HANGS", str(folder))
    group = here(ranks)
    try:
        group.begin(name_of(scenario))
        yield group
    finally:
        group.kill()


def until(true: Callable[[], bool], group: Group | None) -> None:
    """Wait until something is true; ``group``: of which no rank may end before."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        ended = [] if group is None else group.outcomes()
        assert not ended, (ended, group and group.output())
        assert time.monotonic() < end, group and group.output()
        time.sleep(0.1)


def told(
    scenario: Callable[[int], None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ranks: int = 2,
    by: tuple[int, ...] = (0,),
    records: int = 1,
) -> Told:
    """Return what ranks told of a hang, once those in ``by`` have so many records."""
    found: Told = {}

    def all_have() -> bool:
        found.update((rank, read(folder / str(rank))) for rank in by)
        return all(len(hangs) >= records for hangs in found.values())

    with begun(scenario, folder, monkeypatch, ranks) as group:
        until(all_have, None if scenario is scenarios.died else group)
    return found


def read(path: Path) -> list[HangRecord]:
    """Return the records that a rank has written by now."""
    return msgspec.json.decode(path.read_bytes(), type=list[HangRecord]) if path.exists() else []


@pytest.mark.parametrize(
    ("scenario", "kind", "said"),
    [
        (scenarios.died, "died", "for rank 1, which is no more: its process (pid "),
        (scenarios.stopped, "stopped", "for rank 1, which stands still: its process (pid "),
        (scenarios.raised, "raised", "which raised ValueError: a bad batch at hang_scenarios.py:"),
        (scenarios.missing_bucket, "missing_bucket", "has had 1 bucket in step 3 and went on"),
        (scenarios.barrier_on_one, "different_collectives", "is in barrier() in `hang_scenarios"),
        (scenarios.uneven_inputs, "uneven_inputs", "which ends its training in `hang_scenarios"),
        (scenarios.interpreter_held, "interpreter_held", "answers nothing, although its process"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_for_whom_ranks_wait(
    scenario: Callable[[int], None],
    kind: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One rank is the reason: it is named, with what it is at."""
    (record,) = told(scenario, tmp_path, monkeypatch)[0][:1]
    assert (record.kind, record.ranks, record.waiting) == (kind, (1,), (0,)), record.message
    assert said in record.message
    assert record.message.startswith(f"bucket {record.bucket} of step {record.step} has waited ")


@pytest.mark.parametrize(
    ("scenario", "kind", "said"),
    [
        (scenarios.some_ranks_only, "some_ranks_only", "which rank 1 has not issued"),
        (
            scenarios.different_collectives,
            "different_collectives",
            "in all_reduce of",
        ),
        (scenarios.never_completed, "never_completed", "torch lists no pending collective"),
        (
            scenarios.different_order,
            "different_order",
            "not come to; run the models in the same order",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_ranks_do_differently(
    scenario: Callable[[int], None],
    kind: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All have come to the call, and it does not end."""
    record = told(scenario, tmp_path, monkeypatch)[0][0]
    assert record.kind == kind, record.message
    assert said in record.message


def test_ranks_of_other_groups_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number torch gives the group in their processes."""
    scenario = scenarios.some_ranks_of_a_group_only
    record = told(scenario, tmp_path, monkeypatch, ranks=4)[0][0]
    assert (record.kind, record.ranks) == ("some_ranks_only", (1,)), record.message


def test_powersgd_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads whose callbacks wait are named, by where in torch's hook they do."""
    record = told(scenarios.waits_in_callback, tmp_path, monkeypatch, ranks=3)[0][0]
    assert record.kind == "waits_in_callback", record.message
    assert "of native code in `powerSGD_hook.py:" in record.message
    assert "register hooktrace's of the same name" in record.message


def test_evaluation_on_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bucket waits there, but the others at a barrier."""
    record = told(scenarios.evaluation_on_one, tmp_path, monkeypatch)[0][0]
    assert (record.kind, record.ranks, record.bucket) == ("busy", (1,), -1), record.message
    assert record.message.startswith("rank 0 waits in barrier in `hang_scenarios.py:")


def test_four_ranks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, the same, and that it is over."""
    hangs = told(scenarios.slow, tmp_path, monkeypatch, ranks=4, by=(0, 1, 2, 3), records=2)
    for rank, (begun, ended) in hangs.items():
        assert (begun.rank, begun.kind, begun.ranks, begun.waiting) == (
            rank,
            "busy",
            (1,),
            (0, 2, 3),
        )
        assert begun.message == hangs[0][0].message
        assert f"bucket {begun.bucket} of step {begun.step} has waited " in begun.message
        assert "for rank 1, which is in `hang_scenarios.py:" in begun.message
        assert begun.hang == ended.hang == 0
        assert begun.ended_after_ns is None
        assert ended.ended_after_ns is not None
        assert ended.message.startswith("it went on after at most ")
        assert {stack.rank for stack in begun.stacks} == {0, 1, 2, 3}


def test_stopped_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank tells by itself what is the case with rank 0; one of the host has it in its log."""
    hangs = told(scenarios.hub_stopped, tmp_path, monkeypatch, ranks=3, by=(1, 2))
    for rank, found in hangs.items():
        (record,) = found
        assert (record.kind, record.ranks, record.waiting) == ("stopped", (0,), (rank,))
        assert "for rank 0, which stands still: its process (pid " in record.message


def test_a_pause_after_the_hub_was_stopped_is_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ranks suspected while rank 0 stood still is forgotten with it."""
    with begun(scenarios.hub_stopped_for_a_while, tmp_path, monkeypatch, 3) as group:
        until(lambda: all((tmp_path / f"over{rank}").exists() for rank in range(3)), group)
    stood_still = {(step, "stopped") for step in (3, 5)}
    by = {rank: {(h.step, h.kind) for h in read(tmp_path / str(rank))} for rank in range(3)}
    assert by[1] == stood_still
    assert by[2] <= stood_still  # rank 1 may have let it go on before rank 2 told of it
    assert by[0] <= stood_still


def dumped(
    scenario: Callable[[int], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return what each of two ranks has written down, when rank 0 has its record too."""
    paths = [folder / "plugins/hooktrace" / f"hang000-rank0000{rank}.txt" for rank in range(2)]
    with begun(scenario, folder, monkeypatch) as group:
        until(lambda: all(p.exists() and "MainThread" in p.read_text() for p in paths), group)
        until(lambda: bool(read(folder / "0")), group)
    return [path.read_text() for path in paths]


def test_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file a rank, beside the records: what it waits for, and where its threads are."""
    waits, late = dumped(scenarios.dumps, tmp_path, monkeypatch)
    assert waits.startswith("bucket 0 of step 3 has waited ")
    assert "bucket 0 of step 3 for " in waits
    assert "all_reduce of " in waits
    assert " _engine_run_backward" in waits
    assert " next_batch" in late


def test_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks end with the code that torchrun's restart follows, and their files have why."""
    with begun(scenarios.aborts, tmp_path, monkeypatch) as group:
        until(lambda: all(process.poll() is not None for process in group.processes), None)
        assert [process.poll() for process in group.processes] == [EXIT_CODE, EXIT_CODE]
        said = group.output()
        for rank in range(2):
            assert f"hooktrace ends rank {rank} (on_hang='abort'): bucket 0 of step 3 has" in said
    for rank in range(2):
        lines = (tmp_path / f"plugins/hooktrace/rank0000{rank}.jsonl").read_text()
        assert '"kind":"hang"' in lines
