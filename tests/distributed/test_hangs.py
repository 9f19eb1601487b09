"""Real ranks that wait for ever: what only they show; each kind of hang is in ``tests/ranks/hang``.

a scenario, in the main thread of every rank --> records of hangs, which another thread of each
rank writes to a file --> the test, which kills the processes
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, Tracer, hooks, trace
from hooktrace.exporters import RecordFileExporter
from hooktrace.records import HangRecord
from hooktrace.staging.job import job_store
from hooktrace.tracing.tracer import open_tracers
from tests.distributed.harness import Group, here, name_of
from tests.distributed.models import backward, make_ddp

pytestmark = pytest.mark.slow

HANGS_AT = 3
"""The step in which the ranks stop."""

HANG_AFTER_S = 1.5
LATE = 1
"""The rank that does something else."""

MEETS_S = 60.0
DEADLINE_S = 120.0
AT_ONCE = 4
"""Jobs that hang at the same time: they wait most of it."""

FOLDER = "HOOKTRACE_TEST_HANGS"
Scenario = Callable[[int], None]
Told = dict[int, list[HangRecord]]


def observed(rank: int, **options: Any) -> Tracer:
    """Return a tracer whose records of hangs another thread writes into a file of the rank."""
    tracer = Tracer(hang_after_s=HANG_AFTER_S, error_every=0, **options)
    path = Path(os.environ[FOLDER], str(rank))

    def observe() -> None:
        written = b"[]"
        while True:
            time.sleep(0.1)
            found = msgspec.json.encode(tracer.hangs())
            if found != written:
                path.with_suffix(".new").write_bytes(found)
                path.with_suffix(".new").rename(path)
                written = found

    threading.Thread(target=observe, daemon=True).start()
    return tracer


def registered(
    rank: int, hook: Callable[..., Any] = hooks.allreduce_hook, state: object = None, **options: Any
) -> Any:
    """Return a model of several buckets with a traced hook."""
    ddp = make_ddp(**options)
    ddp.register_comm_hook(state, trace(hook, tracer=observed(rank)))
    return ddp


def steps_until(rank: int, ddp: Any, count: int = HANGS_AT) -> None:
    """Make some steps that come to an end, and let the ranks meet on the channel."""
    for step in range(count):
        backward(ddp, rank, step)
    meet(rank)
    time.sleep(0.5)


def meet(rank: int) -> None:
    """Wait until the channel's hub, at rank 0, knows all ranks.

    Of one that stands still before it has come nobody could tell what it is at.
    """
    store, end = job_store("hangs"), time.monotonic() + MEETS_S
    (tracer,) = open_tracers
    while rank == 0 and len(tracer._channel.roster) < dist.get_world_size():
        assert time.monotonic() < end, "the ranks do not meet"
        time.sleep(0.01)
    if rank == 0:
        store.set("together", "")
    while not store.check(["together"]):
        assert time.monotonic() < end, "rank 0 does not say that all are there"
        time.sleep(0.01)


def for_ever() -> None:
    time.sleep(600)


def next_batch() -> None:
    """A data loader that does not come back."""
    for_ever()


# --- one rank does something before its backward pass ---------------------------------------------


def hang(rank: int, act: Callable[[], object], who: int = LATE) -> None:
    """Have one rank do something before its backward pass."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    if rank == who:
        act()
    backward(ddp, rank, HANGS_AT)
    for_ever()


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stopped(rank: int) -> None:
    hang(rank, stop)


def hub_stopped(rank: int) -> None:
    """Rank 0, where the channel's hub is, is stopped by a signal."""
    hang(rank, stop, who=0)


def interpreter_held(rank: int) -> None:
    """Rank 1 is in native code that keeps the interpreter lock: a search of exponential time."""
    hang(rank, lambda: re.match(r"(a+)+$", "a" * 60 + "b"))


def slow(rank: int) -> None:
    """Rank 1 is late until it is told of it, and then comes."""

    def until_told() -> None:
        (tracer,) = open_tracers
        end = time.monotonic() + MEETS_S
        while not tracer.hangs() and time.monotonic() < end:
            time.sleep(0.05)

    hang(rank, until_told)


def uneven_inputs(rank: int) -> None:
    """Rank 1 has a batch less, and ends."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    if rank != LATE:
        backward(ddp, rank, HANGS_AT)
    del ddp
    hooktrace.shutdown()


class Branches(nn.Module):
    """A model with a part that only some batches need."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(32, 32)
        self.extra = nn.Linear(32, 32)
        self.last = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, with_extra: bool) -> torch.Tensor:
        x = self.first(x)
        return self.last(self.extra(x) if with_extra else x)


def missing_bucket(rank: int) -> None:
    """Rank 1 leaves a layer out in one step."""
    ddp = DistributedDataParallel(Branches(), bucket_cap_mb=0.001)
    ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=observed(rank)))
    for step in range(HANGS_AT + 1):
        leaves_out = rank == LATE and step == HANGS_AT
        if step == HANGS_AT:
            meet(rank)
        ddp(torch.randn(4, 32), with_extra=not leaves_out).sum().backward()
    for_ever()


# --- a hook does something else after some calls --------------------------------------------------


class Calls:
    """The state of a hook that does as it should for some calls, over a group."""

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        self.process_group = process_group
        self.calls = 0
        self.store = job_store("hangs")

    def is_due(self) -> bool:
        """Count a call, and return whether the hook is to do something else."""
        self.calls += 1
        return self.calls > 10


def hooked(rank: int, hook: Callable[..., Any], state: Any = None, steps: int = 20) -> None:
    """Train with a hook until it hangs."""
    state = state or Calls()
    group = getattr(state, "process_group", None)
    ddp = registered(rank, hook, state, **({"process_group": group} if group else {}))
    steps_until(rank, ddp, 1)
    for step in range(1, steps):
        backward(ddp, rank, step)
    for_ever()


def met_elsewhere(state: Any, bucket: Any) -> Any:
    """Meet the other ranks in torch's store: a rank that is no more is not noticed there."""
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    if state.is_due():
        key = f"met{state.calls}"
        state.store.add(key, 1)
        while state.store.add(key, 0) < dist.get_world_size():
            time.sleep(0.05)
    return future


def died(rank: int) -> None:
    """Rank 1 is killed, as by the kernel when memory is out; gloo is not asked to notice."""
    ddp = registered(rank, met_elsewhere, Calls())
    for step in range(20):
        if step == 1:
            meet(rank)
        if rank == LATE and step > 8:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(ddp, rank, step)


@hooktrace.staged
def on_some_ranks(state: Calls, bucket: Any) -> Iterator[Any]:
    """Leave the collective out on rank 1."""
    tensor = bucket.buffer()
    if state.is_due() and dist.get_rank() == LATE and bucket.index() == 1:
        return tensor
    tensor.copy_((yield AllReduce(tensor, state.process_group)))
    return tensor


def some_ranks_only(rank: int) -> None:
    """Rank 1 leaves out a bucket's collective, and its next one pairs up with the others'."""
    hooked(rank, on_some_ranks)


def some_ranks_of_a_group_only(rank: int) -> None:
    """Rank 1 leaves one out in a model of ranks 0 and 1; 2 and 3 train another copy, and wait.

    torch numbers a process's groups one by one, so the group of 0 and 1 has the number there that
    another one has on the others.
    """
    if rank >= 2:
        dist.new_group([2, 3], use_local_synchronization=True)
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    hooked(rank, on_some_ranks, Calls(pairs[rank // 2]))


def waits_in_callback(rank: int) -> None:
    """Torch's own PowerSGD, with several buckets, on gloo."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    hooked(rank, powerSGD_hook.powerSGD_hook, state, 200)


# --- the tests ------------------------------------------------------------------------------------


@contextmanager
def begun(scenario: Scenario, folder: Path, ranks: int = 2) -> Iterator[Group]:
    """Ranks that are in a scenario, and are killed afterwards."""
    group = here(ranks, **{FOLDER: folder})
    try:
        group.begin(name_of(scenario))
        yield group
    finally:
        group.kill()


def until(true: Callable[[], bool], group: Group) -> None:
    """Wait until something is true; no rank of the group may end before."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        ended = group.outcomes()
        assert not ended, (ended, group.output())
        assert time.monotonic() < end, group.output()
        time.sleep(0.1)


def told(
    scenario: Scenario,
    folder: Path,
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

    with begun(scenario, folder, ranks) as group:
        until(all_have, group)
    return found


def read(path: Path) -> list[HangRecord]:
    return msgspec.json.decode(path.read_bytes(), type=list[HangRecord]) if path.exists() else []


def told_at_once(hangs: Iterable[tuple[Scenario, int]], folder: Path) -> dict[Scenario, HangRecord]:
    """Return rank 0's first record of each scenario, with so many ranks; a few hang at once."""
    found: dict[Scenario, HangRecord] = {}
    waiting = list(hangs)
    while waiting:
        batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        with ExitStack() as stack:
            for scenario, ranks in batch:
                own = folder / scenario.__name__
                own.mkdir()
                stack.enter_context(begun(scenario, own, ranks))
            end = time.monotonic() + DEADLINE_S
            while len(batch) > sum(one in found for one, _ in batch) and time.monotonic() < end:
                time.sleep(0.1)
                records = {one: read(folder / one.__name__ / "0") for one, _ in batch}
                found |= {one: told[0] for one, told in records.items() if told}
    return found


class Kind(NamedTuple):
    """What is told of a scenario.  ``who``: the rank that is named, by whom it is waited for."""

    kind: str
    said: str
    who: tuple[tuple[int, ...], tuple[int, ...]] | None = ((LATE,), (0,))
    ranks: int = 2


KINDS: dict[Scenario, Kind] = {
    died: Kind("died", "for rank 1, which is no more: its process (pid "),
    stopped: Kind("stopped", "for rank 1, which stands still: its process (pid "),
    missing_bucket: Kind("missing_bucket", "has had 1 bucket in step 3 and went on"),
    uneven_inputs: Kind("uneven_inputs", "which ends its training in `test_hangs"),
    interpreter_held: Kind("interpreter_held", "answers nothing, although its process"),
    some_ranks_only: Kind("some_ranks_only", "which rank 1 has not issued", None),
    # Whatever number torch gives the group in the processes of the others.
    some_ranks_of_a_group_only: Kind("some_ranks_only", "", ((LATE,), (0,)), 4),
    # The threads whose callbacks wait are named, by where in torch's hook they do.
    waits_in_callback: Kind("waits_in_callback", "of native code in `powerSGD_hook.py:", None, 3),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[Scenario, HangRecord]:
    ranks = [(scenario, kind.ranks) for scenario, kind in KINDS.items()]
    return told_at_once(ranks, tmp_path_factory.mktemp("hangs"))


@pytest.mark.parametrize("scenario", KINDS, ids=lambda scenario: scenario.__name__)
def test_each_kind_is_told(seen: dict[Scenario, HangRecord], scenario: Scenario) -> None:
    """With the rank that is the reason, where it is one, and what it is at."""
    record, expected = seen[scenario], KINDS[scenario]
    assert record.kind == expected.kind, record.message
    assert expected.said in record.message
    if expected.who is not None:
        assert (record.ranks, record.waiting) == expected.who, record.message
        begins = f"bucket {record.bucket} of step {record.step} has waited "
        assert record.message.startswith(begins)


def test_four_ranks_are_told(tmp_path: Path) -> None:
    """All of them, the same, and that it is over."""
    hangs = told(slow, tmp_path, ranks=4, by=(0, 1, 2, 3), records=2)
    for rank, (begun, ended) in hangs.items():
        assert (begun.rank, begun.kind, begun.ranks) == (rank, "busy", (LATE,))
        assert begun.waiting == (0, 2, 3)
        assert begun.message == hangs[0][0].message
        assert f"bucket {begun.bucket} of step {begun.step} has waited " in begun.message
        assert "for rank 1, which is in `test_hangs.py:" in begun.message
        assert begun.hang == ended.hang == 0
        assert begun.ended_after_ns is None
        assert ended.ended_after_ns is not None
        assert ended.message.startswith("it went on after at most ")
        assert {stack.rank for stack in begun.stacks} == {0, 1, 2, 3}


def test_stopped_hub(tmp_path: Path) -> None:
    """Each rank tells by itself what is the case with rank 0; one of the host has it in its log."""
    hangs = told(hub_stopped, tmp_path, ranks=3, by=(1, 2))
    for rank, found in hangs.items():
        (record,) = found
        assert (record.kind, record.ranks, record.waiting) == ("stopped", (0,), (rank,))
        assert "for rank 0, which stands still: its process (pid " in record.message


def dumps(rank: int) -> None:
    """Rank 1 is in its data loader; all write down what they know, beside their records."""
    exporter = RecordFileExporter(logdir=os.environ[FOLDER])
    tracer = observed(rank, on_hang="dump", exporters=[exporter])
    ddp = make_ddp()
    ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
    steps_until(rank, ddp)
    if rank == LATE:
        next_batch()
    backward(ddp, rank, HANGS_AT)


def dumped(scenario: Scenario, folder: Path) -> list[str]:
    """Return what each of two ranks has written down, when rank 0 has its record too."""
    paths = [folder / "plugins/hooktrace" / f"hang000-rank0000{rank}.txt" for rank in range(2)]
    with begun(scenario, folder) as group:
        until(lambda: all(p.exists() and "MainThread" in p.read_text() for p in paths), group)
        until(lambda: bool(read(folder / "0")), group)
    return [path.read_text() for path in paths]


def test_dump(tmp_path: Path) -> None:
    """One file a rank, beside the records: what it waits for, and where its threads are."""
    waits, late = dumped(dumps, tmp_path)
    assert waits.startswith("bucket 0 of step 3 has waited ")
    assert "bucket 0 of step 3 for " in waits
    assert "all_reduce of " in waits
    assert " _engine_run_backward" in waits
    assert " next_batch" in late
