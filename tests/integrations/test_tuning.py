"""What a job that is tuned is asked, and what it tells; on real ranks: distributed/test_tune.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace.hooks import OptimizerHookState, allreduce_hook, hook_then_optimizer
from hooktrace.integrations import models, tuning
from hooktrace.integrations.tuning import LEFT_OUT, OWN, TURN, WHERE, Plan, Turns, take
from hooktrace.integrations.tuning import rounds as of_rounds
from hooktrace.staging import devices


def turns(steps: Mapping[str, float], rounds: int, *, seconds: float = 0.0) -> list[str]:
    """Return whose turns there were; a hook's step takes so long in each round, or by turns."""
    times: dict[str, list[float]] = {label: [] for label in steps}
    plan, found = Plan(rounds, seconds=seconds, limit_s=1000), list[str]()
    for label in of_rounds([*steps], plan, lambda: float(len(found)), times):
        found.append(label)
        times[label].append(steps[label])
    return found


def test_each_round_has_each_hook_once_in_an_order_of_its_own() -> None:
    """To the last round, and on for as long as the start is to take."""
    steps = dict.fromkeys((OWN, "a", "b", "c"), 1.0)
    found = turns(steps, 20)
    rounds = [found[i : i + 4] for i in range(0, len(found), 4)]
    assert len(rounds) == 20
    assert all(sorted(one) == sorted(steps) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 5
    assert len(turns(steps, 20, seconds=101.0)) == 104


def test_slow_hooks_leave_by_halves() -> None:
    """After 5 rounds, 10 and 20; three stay, and what the job has."""
    steps = {OWN: 20.0} | {f"{n}": float(n) for n in range(1, 13)}
    had = Counter(turns(steps, 40))
    assert {label: had[label] for label in ("1", "2", "3", OWN)} == dict.fromkeys(
        ("1", "2", "3", OWN), 40
    )
    assert [had[f"{n}"] for n in range(4, 13)] == [10, 10, 10, 5, 5, 5, 5, 5, 5]
    # Who was the faster one in some round stays: it may be noise that the others were faster.
    alike = dict.fromkeys((OWN, "a", "b", "c", "d", "e", "f"), 1.0)
    assert set(Counter(turns(alike, 12)).values()) == {12}


def test_a_start_ends_at_its_limit() -> None:
    """Also in the middle of a round."""
    now = iter([0.0, 29.9, 29.9, 30.0])
    plan = Plan(20, seconds=0.0, limit_s=30)
    assert len([*of_rounds([OWN, "a"], plan, lambda: next(now), {})]) == 3


def test_turns_of_a_model_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is timed without its first steps, once it is over; the one before all is not.

    So is the memory.
    """
    wanted = Plan(2, 0.0, 60.0, model=1, hooks=["a"])
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    monkeypatch.setattr(Turns, "largest", (0, 0))
    had = list[str]()
    # Steps take 1 ns more in each turn, those that do not count 1000.
    took = [turn + 1000 * (step < LEFT_OUT) for turn in range(8) for step in range(TURN)]
    begins = accumulate(took, initial=0)

    def step() -> None:
        now = next(begins)
        monkeypatch.setattr(tuning.time, "perf_counter_ns", lambda: now)
        turns.step()

    memory, told = torch.accelerator, count()  # each is read when the next turn begins
    monkeypatch.setattr(memory, "max_memory_allocated", lambda _: next(told))
    monkeypatch.setattr(memory, "reset_peak_memory_stats", lambda _: None)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Linear(4, 4, device="meta")
        turns = Turns(model, wanted, {"number": 1}, [OWN, "a"], had.append)
        for _ in range(5 * TURN):
            step()
        exits = list[int]()
        monkeypatch.setattr(tuning.os, "_exit", exits.append)
        with pytest.raises(SystemExit):
            step()
        assert exits == []
        step()  # the script goes on all the same
        assert exits == [0]
    finally:
        dist.destroy_process_group()
    assert Counter(had) == {OWN: 3, "a": 2}
    seen = json.loads((tmp_path / "start-rank00000.json").read_text())
    assert seen["turns"] == had
    times = {label: [float(i) for i in range(1, 5) if had[i] == label] for label in (OWN, "a")}
    assert seen["times"] == times
    peaks = {label: max(i for i in range(1, 5) if had[i] == label) - 1 for label in (OWN, "a")}
    assert seen["peaks"] == peaks
    assert sum(seen["sizes"]) == 80


def test_a_script_that_survives_an_error_of_ours_ends_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command says then what the job printed, and not that it was too short."""
    monkeypatch.setattr(Turns, "largest", (0, 0))
    monkeypatch.setattr(tuning, "_of_rank_0", lambda _, said: said())
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    exits = list[int]()
    monkeypatch.setattr(tuning.os, "_exit", exits.append)

    def fail(label: str) -> None:
        raise MemoryError(label)

    turns = Turns(torch.nn.Linear(4, 4), Plan(2, 0.0, 60.0, model=1), {"number": 1}, [OWN], fail)
    with pytest.raises(MemoryError):
        turns.step()
    turns.step()
    assert exits == [1]


class FakeEvent:
    """The device comes by each step 1.5 ms after the one before."""

    steps = 0

    def __init__(self, device: torch.device) -> None:
        self.at_ms = 1.5 * self.steps

    def record(self, stream: object) -> None:
        """Be recorded on a stream."""

    def synchronize(self) -> None:
        """Have been passed."""

    def elapsed_time(self, other: FakeEvent) -> float:
        """Return ms from this one to another one."""
        return other.at_ms - self.at_ms


def test_a_device_tells_when_steps_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, from turn to turn, and none of the host's times."""
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    monkeypatch.setattr(Turns, "largest", (0, 0))
    monkeypatch.setattr(devices, "has_events", lambda _: True)
    monkeypatch.setattr(devices, "stream_of", lambda _: None)
    monkeypatch.setattr(devices, "new_event", FakeEvent)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        turns = Turns(torch.nn.Linear(4, 4), Plan(5, 0.0, 60.0), {"number": 1})
        for step in range(3 * TURN + 1):
            monkeypatch.setattr(FakeEvent, "steps", step)
            turns.step()
    finally:
        dist.destroy_process_group()
    seen = json.loads((tmp_path / "start-rank00000.json").read_text())
    assert seen["times"] == {OWN: [1_500_000.0] * 2}


def test_new_turns_of_a_model_are_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rank 0 said of the turns before, of a script that registers late, is no answer."""
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    monkeypatch.setattr(Turns, "largest", (0, 0))
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=0.2))
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for rank in (0, 1):
            turns = Turns(torch.nn.Linear(4, 4), Plan(2, 0.0, 60.0), {"number": 1})
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            for _ in range((TURN + 1) * (rank == 0)):
                turns.step()
        with pytest.raises(RuntimeError, match="imeout"):
            turns.step()
    finally:
        dist.destroy_process_group()


def test_a_hook_that_does_more_than_average_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its optimizer would not run in the turns of the others."""
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    for hook in (
        hook_then_optimizer(allreduce_hook, OptimizerHookState({})),
        optimizer_overlap_hooks._hook_then_optimizer,
    ):
        ddp: Any = None
        with pytest.raises(SystemExit):
            take(Plan(1, 0.0, 1.0), {}, ddp, (hook, None), print)
        assert "does more than average gradients" in refusal(tmp_path)


def refusal(tmp_path: Path) -> str:
    """Return why the job was refused, and forget it."""
    (path,) = tmp_path.iterdir()
    seen = json.loads(path.read_text())
    path.unlink()
    return str(seen["why_not"])


def test_a_model_that_no_hook_gets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would end its job before the time of the start is over; a copy is let be."""
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    monkeypatch.setattr(tuning, "_asked", lambda _: Plan(1, 0.0, 1.0, model=1))
    monkeypatch.setattr(models, "_patch", lambda: None)

    def fail(*_: object) -> None:
        raise TypeError("it is sparse")

    monkeypatch.setattr(tuning, "take", fail)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
        tuning._begin_step(ddp)
        tuning._made(ddp)
        with pytest.raises(SystemExit):
            ddp(torch.ones(4))
    finally:
        dist.destroy_process_group()
    assert "take the place of what averages Linear" in refusal(tmp_path)
