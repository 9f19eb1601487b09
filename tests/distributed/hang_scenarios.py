"""Ways in which ranks come to wait for ever, each with the main thread of every rank in it.

What is seen of them is written to files by another thread, and the processes are killed then.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllGather, AllReduce, Tracer, hooks, trace
from hooktrace.exporters import RecordFileExporter
from hooktrace.staging.job import job_store
from hooktrace.tracing.state import open_tracers
from tests.distributed.models import backward, make_ddp

HANGS_AT = 3
"""The step in which the ranks stop."""

HANG_AFTER_S = 1.5

LATE = 1
"""The rank that does something else."""

DEADLINE_S = 60.0


def observed(rank: int, **options: Any) -> Tracer:
    """Return a tracer whose records of hangs another thread writes into a file of the rank."""
    tracer = Tracer(hang_after_s=HANG_AFTER_S, error_every=0, **options)
    path = Path(os.environ["HOOKTRACE_TEST_HANGS"], str(rank))

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
    store, end = job_store("hangs"), time.monotonic() + DEADLINE_S
    (tracer,) = open_tracers
    while rank == 0 and len(tracer._channel.node.roster) < dist.get_world_size():
        assert time.monotonic() < end, "the ranks do not meet"
        time.sleep(0.01)
    if rank == 0:
        store.set("together", "")
    while not store.check(["together"]):
        assert time.monotonic() < end, "rank 0 does not say that all are there"
        time.sleep(0.01)


def slow(rank: int) -> None:
    """Rank 1 is late until it is told of it, and then comes."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    (tracer,) = open_tracers
    end = time.monotonic() + DEADLINE_S
    while rank == LATE and not tracer.hangs() and time.monotonic() < end:
        time.sleep(0.05)
    backward(ddp, rank, HANGS_AT)
    for_ever()


def dumps(rank: int) -> None:
    """Rank 1 is in its data loader; all write down what they know, beside their records."""
    _recorded(rank, "dump")


def aborts(rank: int) -> None:
    """Rank 1 is in its data loader; all end, and their records are written."""
    _recorded(rank, "abort")


def _recorded(rank: int, on_hang: str) -> None:
    folder = os.environ["HOOKTRACE_TEST_HANGS"]
    tracer = observed(rank, on_hang=on_hang, exporters=[RecordFileExporter(logdir=folder)])
    ddp = make_ddp()
    ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
    steps_until(rank, ddp)
    if rank == LATE:
        next_batch()
    backward(ddp, rank, HANGS_AT)


def cut_off(rank: int) -> None:
    """Both ranks train; the cable between them is cut when they have said so."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    folder = Path(os.environ["HOOKTRACE_TEST_HANGS"])
    (folder / f"ready{rank}").touch()
    while not (folder / "cut").exists():
        time.sleep(0.05)
    backward(ddp, rank, HANGS_AT)


def for_ever() -> None:
    """Wait until the process is killed."""
    time.sleep(600)


def next_batch() -> None:
    """A data loader that does not come back."""
    for_ever()


def stop() -> None:
    """Be stopped by a signal."""
    os.kill(os.getpid(), signal.SIGSTOP)


def raise_and_stay() -> None:
    """Raise, and stay in the except."""
    try:
        raise ValueError("a bad batch")
    except ValueError:
        for_ever()


def hold_the_interpreter() -> None:
    """Be in native code that keeps the interpreter lock: a search of exponential time."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def hang(rank: int, act: Callable[[], object], who: int = LATE) -> None:
    """Have one rank do something before its backward pass."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    if rank == who:
        act()
    backward(ddp, rank, HANGS_AT)
    for_ever()


def stopped(rank: int) -> None:
    """Rank 1 is stopped by a signal."""
    hang(rank, stop)


def hub_stopped(rank: int) -> None:
    """Rank 0, where the channel's hub is, is stopped by a signal."""
    hang(rank, stop, who=0)


def raised(rank: int) -> None:
    """Rank 1 raises, and stays in its except."""
    hang(rank, raise_and_stay)


def interpreter_held(rank: int) -> None:
    """Rank 1 is in native code that keeps the interpreter lock."""
    hang(rank, hold_the_interpreter)


def barrier_on_one(rank: int) -> None:
    """Rank 1 waits at a barrier that the others do not come to."""
    hang(rank, dist.barrier)


def evaluation_on_one(rank: int) -> None:
    """Rank 1 is in its data loader, the others wait for it at a barrier."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    if rank == LATE:
        next_batch()
    dist.barrier()


def met_elsewhere(state: Any, bucket: Any) -> Any:
    """Meet the other ranks in torch's store: a rank that is no more is not noticed there."""
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    state.calls += 1
    if state.calls > 10:
        key = f"met{state.calls}"
        state.store.add(key, 1)
        while state.store.add(key, 0) < dist.get_world_size():
            time.sleep(0.05)
    return future


class Meetings:
    """Counts the calls of a hook, and has torch's store."""

    def __init__(self) -> None:
        self.calls = 0
        self.store = job_store("hangs")


def died(rank: int) -> None:
    """Rank 1 is killed, as by the kernel when memory is out; gloo is not asked to notice."""
    ddp = registered(rank, met_elsewhere, Meetings())
    for step in range(20):
        if step == 1:
            meet(rank)
        if rank == LATE and step > 8:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(ddp, rank, step)


def hub_stopped_for_a_while(rank: int) -> None:
    """Rank 0 is stopped until rank 1 tells of it, goes on, and then announces a pause; twice."""
    ddp = registered(rank)
    store = job_store("hangs")  # whose server stands still with rank 0
    if rank == 0:
        store.set("hub", str(os.getpid()))
    hub = int(store.get("hub"))
    steps_until(rank, ddp)
    (tracer,) = open_tracers
    if rank == 1:
        threading.Thread(target=_let_go_on, args=(tracer, hub), daemon=True).start()
    for step in range(HANGS_AT, HANGS_AT + 4, 2):
        if rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        backward(ddp, rank, step)
        if rank == 0:
            with tracer.pause_watchdog():
                time.sleep(6 * HANG_AFTER_S)
        backward(ddp, rank, step + 1)
    Path(os.environ["HOOKTRACE_TEST_HANGS"], f"over{rank}").touch()
    for_ever()


def _let_go_on(tracer: Tracer, pid: int) -> None:
    """Send a stopped process SIGCONT, each time that a hang is told."""
    for step in range(HANGS_AT, HANGS_AT + 4, 2):
        while not any(hang.step == step for hang in tracer.hangs()):
            time.sleep(0.05)
        os.kill(pid, signal.SIGCONT)


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


@hooktrace.staged
def on_some_ranks(state: Any, bucket: Any) -> Iterator[Any]:
    """Leave the collective out where this rank's gradients are small."""
    tensor = bucket.buffer()
    state.calls += 1
    if dist.get_rank() == LATE and state.calls > 10 and bucket.index() == 1:
        return tensor
    tensor.copy_((yield AllReduce(tensor)))
    return tensor


class Calls:
    """Counts the calls of a hook."""

    calls = 0


def some_ranks_only(rank: int) -> None:
    """Rank 1 leaves out a bucket's collective, and its next one pairs up with the others'."""
    ddp = registered(rank, on_some_ranks, Calls())
    steps_until(rank, ddp, 1)
    for step in range(1, 20):
        backward(ddp, rank, step)
    for_ever()


class InGroup(Calls):
    """Counts the calls of a hook, and has the group that it reduces over."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self.process_group = process_group


@hooktrace.staged
def on_some_ranks_of_a_group(state: InGroup, bucket: Any) -> Iterator[Any]:
    """Leave the collective out on rank 1, whose group it is a part of."""
    tensor = bucket.buffer()
    state.calls += 1
    if dist.get_rank() == LATE and state.calls > 10 and bucket.index() == 1:
        return tensor
    tensor.copy_((yield AllReduce(tensor, state.process_group)))
    return tensor


def some_ranks_of_a_group_only(rank: int) -> None:
    """Rank 1 leaves one out in a model of ranks 0 and 1; 2 and 3 train another copy, and wait.

    torch numbers a process's groups one by one, so the group of 0 and 1 has the number there that
    another one has on the others.
    """
    if rank >= 2:
        dist.new_group([2, 3], use_local_synchronization=True)
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    own = pairs[rank // 2]
    ddp = registered(rank, on_some_ranks_of_a_group, InGroup(own), process_group=own)
    steps_until(rank, ddp, 1)
    for step in range(1, 20):
        backward(ddp, rank, step)
    dist.barrier()


@hooktrace.staged
def other_collective(state: Any, bucket: Any) -> Iterator[Any]:
    """Gather on one rank where the others reduce."""
    tensor = bucket.buffer()
    state.calls += 1
    if dist.get_rank() == LATE and state.calls > 10:
        yield AllGather(tensor)
    else:
        yield AllReduce(tensor)
    return tensor


def different_collectives(rank: int) -> None:
    """The hook gathers on rank 1 and reduces on the others."""
    ddp = registered(rank, other_collective, Calls())
    steps_until(rank, ddp, 1)
    for step in range(1, 20):
        backward(ddp, rank, step)
    for_ever()


def different_order(rank: int) -> None:
    """Rank 1 runs the second model's backward pass first."""
    models = [make_ddp(process_group=dist.new_group()) for _ in range(2)]
    tracer = observed(rank)
    for model in models:
        model.register_comm_hook(model.process_group, trace(hooks.allreduce_hook, tracer=tracer))
    for model in models:
        steps_until(rank, model)
    for model in models[:: -1 if rank == LATE else 1]:
        backward(model, rank, HANGS_AT)


def uneven_inputs(rank: int) -> None:
    """Rank 1 has a batch less, and ends."""
    ddp = registered(rank)
    steps_until(rank, ddp)
    if rank != LATE:
        backward(ddp, rank, HANGS_AT)
    del ddp
    hooktrace.shutdown()


def waits_in_callback(rank: int) -> None:
    """Torch's own PowerSGD, with several buckets, on gloo."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    ddp = registered(rank, powerSGD_hook.powerSGD_hook, state)
    steps_until(rank, ddp, 1)
    for step in range(1, 200):
        backward(ddp, rank, step)
    for_ever()


def never_ends(state: Any, bucket: Any) -> Any:
    """Return a future that nobody completes, at some time."""
    state.calls += 1
    future: Any = torch.futures.Future()
    if state.calls <= 10:
        future.set_result(bucket.buffer())
    return future


def never_completed(rank: int) -> None:
    """The hook's future has no result."""
    ddp = registered(rank, never_ends, Calls())
    steps_until(rank, ddp, 1)
    for step in range(1, 20):
        backward(ddp, rank, step)
