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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

import hooktrace
from hooktrace import AllReduce, Tracer, hooks, trace
from hooktrace.records import HangRecord
from hooktrace.staging.job import job_store
from hooktrace.tracing.tracer import open_tracers
from tests.distributed.harness import Group, here, name_of
from tests.distributed.models import backward, make_ddp
from tests.fakes import plain
from tests.ranks.channel.jobs import wait_for

pytestmark = pytest.mark.slow

HANGS_AT = 3
"""The step in which the ranks stop."""

HANG_AFTER_S = 1.5
LATE = 1
"""The rank that does something else."""

DEADLINE_S = 120.0
AT_ONCE = 4
"""Jobs that hang at the same time: they wait most of it."""

FOLDER = "HOOKTRACE_TEST_HANGS"
Scenario = Callable[[int], None]
Told = dict[Scenario, dict[int, list[HangRecord]]]
"""Of each scenario, the records of each rank that is asked."""


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


def steps_until(
    rank: int, hook: Callable[..., Any] = hooks.allreduce_hook, state: Any = None
) -> Any:
    """Return a model with a traced hook, after some steps; the ranks have met on the channel."""
    ddp = make_ddp()
    ddp.register_comm_hook(state, trace(hook, tracer=observed(rank)))
    for step in range(HANGS_AT):
        backward(ddp, rank, step)
    meet(rank)
    time.sleep(0.5)
    return ddp


def meet(rank: int) -> None:
    """Wait until the hub, at rank 0, knows all: of one that never came nobody could tell."""
    store, (tracer,) = job_store("hangs"), open_tracers
    if rank == 0:
        ranks = dist.get_world_size()
        assert wait_for(lambda: len(tracer._channel.roster) == ranks), "the ranks do not meet"
        store.set("together", "")
    assert wait_for(lambda: store.check(["together"])), "rank 0 does not say that all are there"


def for_ever() -> None:
    time.sleep(600)


def hang(
    rank: int, act: Callable[[], object] = lambda: None, who: int = LATE, **hooked: Any
) -> None:
    """Have one rank do something before its backward pass, if not in its hook; all train on."""
    ddp = steps_until(rank, **hooked)
    if rank == who:
        act()
    for step in range(HANGS_AT, 100):
        backward(ddp, rank, step)
    for_ever()


def hub_stopped(rank: int) -> None:
    """Rank 0, where the channel's hub is, is stopped by a signal."""
    hang(rank, lambda: os.kill(os.getpid(), signal.SIGSTOP), who=0)


def interpreter_held(rank: int) -> None:
    """Rank 1 is in native code that keeps the interpreter lock: a search of exponential time."""
    hang(rank, lambda: re.match(r"(a+)+$", "a" * 60 + "b"))


def slow(rank: int) -> None:
    """Rank 1 is late until it is told of it, and then comes."""

    def until_told() -> None:
        (tracer,) = open_tracers
        end = time.monotonic() + DEADLINE_S
        while not tracer.hangs() and time.monotonic() < end:
            time.sleep(0.05)  # in this file, which the message names

    hang(rank, until_told)


def uneven_inputs(rank: int) -> None:
    """Rank 1 has a batch less, and ends."""
    ddp = steps_until(rank)
    if rank != LATE:
        backward(ddp, rank, HANGS_AT)
    del ddp
    hooktrace.shutdown()


def met_elsewhere(state: dict[int, int], bucket: Any) -> Any:
    """Meet the other ranks in torch's store: a rank that is no more is not noticed there."""
    state[bucket.index()] = state.get(bucket.index(), 0) + 1
    store, key = job_store("hangs"), f"met {bucket.index()} {state[bucket.index()]}"
    store.add(key, 1)
    while store.add(key, 0) < dist.get_world_size():
        time.sleep(0.01)
    return plain(state, bucket)


def died(rank: int) -> None:
    """Rank 1 is killed, as by the kernel when memory is out; gloo is not asked to notice."""
    hang(rank, lambda: os.kill(os.getpid(), signal.SIGKILL), hook=met_elsewhere, state={})


def raised(rank: int) -> None:
    """Rank 1 raises, and stays where it handles that."""

    def fail() -> None:
        try:
            raise ValueError("no data")
        except ValueError:
            for_ever()

    hang(rank, fail)


def missing_bucket(rank: int) -> None:
    """The last layer of rank 1 takes no part in the loss, and rank 1 goes on."""
    ddp = steps_until(rank)
    if rank == LATE:
        ddp.module[0].register_forward_hook(lambda module, inputs, output: output.detach())
    backward(ddp, rank, HANGS_AT)
    for_ever()


def different_order(rank: int) -> None:
    """Rank 1 has the second model's backward pass first; each model has a group of its own."""
    first = steps_until(rank)
    (tracer,) = open_tracers
    group = dist.new_group()
    second = make_ddp(process_group=group)
    second.register_comm_hook(group, trace(hooks.allreduce_hook, tracer=tracer))
    for ddp in (second, first, second):
        backward(ddp, rank, 0)
    time.sleep(0.5)
    for ddp in (second, first) if rank == LATE else (first, second):
        backward(ddp, rank, HANGS_AT)
    for_ever()


def lost_future(state: list[int], bucket: Any) -> Any:
    """Return a future that nobody completes, once the ranks have met."""
    state.append(bucket.index())
    return hooks.allreduce_hook(None, bucket) if len(state) <= 30 else torch.futures.Future()


def never_completed(rank: int) -> None:
    """A plain hook loses a future, on all ranks."""
    hang(rank, hook=lost_future, state=[])


@hooktrace.staged
def on_some_ranks(state: list[int], bucket: Any) -> Iterator[Any]:
    """Leave a collective out on rank 1, once the ranks have met."""
    state.append(bucket.index())
    tensor = bucket.buffer()
    if state.count(1) == HANGS_AT and dist.get_rank() == LATE and bucket.index() == 1:
        return tensor
    tensor.copy_((yield AllReduce(tensor)))
    return tensor


def some_ranks_only(rank: int) -> None:
    """Rank 1 leaves out a bucket's collective, and its next one pairs up with the others'."""
    hang(rank, hook=on_some_ranks, state=[])


def waits_in_callback(rank: int) -> None:
    """Torch's own PowerSGD, with several buckets, on gloo."""
    state = powerSGD_hook.PowerSGDState(
        None,
        matrix_approximation_rank=1,
        start_powerSGD_iter=HANGS_AT + 1,
        min_compression_rate=0.5,
    )
    hang(rank, hook=powerSGD_hook.powerSGD_hook, state=state)


def no_channel(rank: int) -> None:
    """Rank 1 is late, and has no channel over which it could say at what it is."""
    ddp = make_ddp()
    tracer = observed(rank, channel=rank != LATE)
    ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
    for step in range(HANGS_AT):
        backward(ddp, rank, step)
    if rank != LATE:
        backward(ddp, rank, HANGS_AT)
    for_ever()


@contextmanager
def begun(scenario: Scenario, folder: Path, ranks: int = 2) -> Iterator[Group]:
    """Ranks that are in a scenario, and are killed afterwards."""
    group = here(ranks, **{FOLDER: folder})
    try:
        group.begin(name_of(scenario))
        yield group
    finally:
        group.kill()


def read(path: Path) -> list[HangRecord]:
    return msgspec.json.decode(path.read_bytes(), type=list[HangRecord]) if path.exists() else []


class Kind(NamedTuple):
    """What is told of a scenario with so many ranks.

    ``who``: the rank that is named, by whom it is waited for.  ``by``: the ranks that are asked.
    ``records``: how many each of them is to have.
    """

    kind: str
    said: str
    who: tuple[tuple[int, ...], tuple[int, ...]] | None = ((LATE,), (0,))
    ranks: int = 2
    by: tuple[int, ...] = (0,)
    records: int = 1


KINDS: dict[Scenario, Kind] = {
    slow: Kind(
        "busy", "for rank 1, which is in `test_hangs.py:", ((LATE,), (0, 2, 3)), 4, (0, 1, 2, 3), 2
    ),
    # Each rank tells by itself what is the case with rank 0.
    hub_stopped: Kind(
        "stopped", "for rank 0, which stands still: its process (pid ", ((0,), (1,)), 3, (1, 2)
    ),
    died: Kind("died", "for rank 1, which is no more: its process (pid "),
    uneven_inputs: Kind("uneven_inputs", "which ends its training in `test_hangs"),
    interpreter_held: Kind("interpreter_held", "answers nothing, although its process"),
    some_ranks_only: Kind("some_ranks_only", "which rank 1 has not issued", None),
    raised: Kind("raised", "for rank 1, which raised ValueError: no data at test_hangs.py:"),
    missing_bucket: Kind("missing_bucket", "and went on: it is in `test_hangs.py:"),
    # Each waits for the other; who waited longer is told.
    different_order: Kind("different_order", " has not come to; run the models in the same", None),
    never_completed: Kind("never_completed", "the hook has returned there", None),
    # The threads whose callbacks wait are named, by where in torch's hook they do.
    waits_in_callback: Kind("waits_in_callback", "of native code in `powerSGD_hook.py:", None, 3),
    no_channel: Kind(
        "unknown", "for rank 1, which does not answer (it has not joined the channel), and nothing"
    ),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What ranks told of each scenario; a few hang at once."""
    folder, found = tmp_path_factory.mktemp("hangs"), {}
    waiting = list(KINDS.items())
    while waiting:
        batch, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        with ExitStack() as stack:
            for scenario, kind in batch:
                own = folder / scenario.__name__
                own.mkdir()
                stack.enter_context(begun(scenario, own, kind.ranks))
            missing, end = dict(batch), time.monotonic() + DEADLINE_S
            while missing and time.monotonic() < end:
                time.sleep(0.1)
                for scenario, kind in [*missing.items()]:
                    told = {r: read(folder / scenario.__name__ / str(r)) for r in kind.by}
                    if all(len(hangs) >= kind.records for hangs in told.values()):
                        found[scenario] = told
                        del missing[scenario]
    return found


@pytest.mark.parametrize("scenario", KINDS, ids=lambda scenario: scenario.__name__)
def test_each_kind_is_told(seen: Told, scenario: Scenario) -> None:
    """With the rank that is the reason, where it is one, and what it is at."""
    expected = KINDS[scenario]
    for rank, (record, *_) in seen[scenario].items():
        assert (record.rank, record.kind) == (rank, expected.kind), record.message
        assert expected.said in record.message
        if expected.who is not None:
            late, waiting = expected.who
            waiting = (rank,) if scenario is hub_stopped else waiting
            assert (record.ranks, record.waiting) == (late, waiting), record.message
            begins = f"bucket {record.bucket} of step {record.step} has waited "
            assert record.message.startswith(begins)


def test_all_ranks_are_told_the_same_and_that_it_is_over(seen: Told) -> None:
    """With the stacks of all."""
    hangs = seen[slow]
    for begun, ended, *_ in hangs.values():
        assert begun.message == hangs[0][0].message
        assert begun.hang == ended.hang == 0
        assert begun.ended_after_ns is None
        assert ended.ended_after_ns is not None
        assert ended.message.startswith("it went on after at most ")
        assert {stack.rank for stack in begun.stacks} == {0, 1, 2, 3}
