"""What the ranks do in ``test_local_hooks.py``: post-local SGD and gossip, on 4 ranks."""

from __future__ import annotations

import io
import pickle
import socket
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as torch_local
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, trace
from hooktrace.hooks.gossip import GossipGradState, gossip_grad_hook
from hooktrace.hooks.local_sgd import PostLocalSGDState, post_localSGD_hook
from tests.distributed.harness import scenario
from tests.distributed.models import backward, gradients, make_ddp, make_model

STEPS, START = 30, 12

# A new DDP model has another bucket layout in its first step, and with it gloo's all-reduce of
# more than two ranks adds in another order.  With this option the layout stays as it is.
ONE_LAYOUT: dict[str, Any] = {"find_unused_parameters": True}


def pair() -> dist.ProcessGroup:
    """Return the group of ranks 0 and 1, or of 2 and 3."""
    group, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    return group


class Run:
    """A model in training, with all that a checkpoint has."""

    def __init__(self, hook: Callable[..., Any], state: Any, **options: Any) -> None:
        self.ddp = make_ddp(bucket_cap_mb=0.001, **options)
        self.ddp.register_comm_hook(state, hook)
        self.state = state
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-3, momentum=0.9)

    def train(self, rank: int, steps: range, averager: Any = None) -> torch.Tensor:
        """Run steps; return each one's gradients followed by the parameters."""
        seen = []
        for step in steps:
            self.optimizer.zero_grad()
            backward(self.ddp, rank, step)
            self.optimizer.step()
            if averager is not None:
                averager.average_parameters(self.ddp.parameters())
            seen.append(torch.cat([gradients(self.ddp), *map(torch.flatten, self.weights())]))
        return torch.stack(seen)

    def weights(self) -> list[torch.Tensor]:
        """Return the parameters."""
        return [parameter.detach().clone() for parameter in self.ddp.parameters()]

    def saved(self) -> bytes:
        """Return a checkpoint."""
        buffer = io.BytesIO()
        torch.save([self.ddp.module.state_dict(), self.optimizer.state_dict()], buffer)
        return pickle.dumps((buffer.getvalue(), self.state))


def resumed(checkpoint: bytes, hook: Callable[..., Any], **groups: Any) -> Run:
    """Return the run that a checkpoint of each rank continues."""
    tensors, state = pickle.loads(checkpoint)
    for name, group in groups.items():
        setattr(state, name, group)
    run = Run(hook, state, **ONE_LAYOUT)
    model, optimizer = torch.load(io.BytesIO(tensors))
    # After DDP has made all replicas equal to rank 0's: they no longer are.
    run.ddp.module.load_state_dict(model)
    run.optimizer.load_state_dict(optimizer)
    return run


def local_parity(rank: int) -> dict[str, dict[str, Any]]:
    """Compare with torch's hook, by case: bits, the step count, what the steps sent."""
    group, world = pair(), dist.group.WORLD
    cases: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "subgroup": ((None, group, START), {}),
        "given groups": ((world, group, START), {"gradient_as_bucket_view": True}),
        "nothing after": ((None, group, START, False), {"static_graph": True}),
        "local at once": ((None, group, 0), {}),
        "never local": ((None, group, STEPS + 1), {}),
    }
    facts = {}
    for name, (arguments, options) in cases.items():
        theirs = torch_local.PostLocalSGDState(*arguments)
        reference = Run(torch_local.post_localSGD_hook, theirs, **options)
        expected = reference.train(rank, range(STEPS), PeriodicModelAverager(4, START))
        ours = PostLocalSGDState(*arguments)
        with Tracer() as tracer:
            run = Run(trace(post_localSGD_hook, tracer=tracer), ours, **options)
            seen = run.train(rank, range(STEPS), PeriodicModelAverager(4, START))
            facts[name] = {
                "same": torch.equal(seen, expected),
                "iter": (ours.iter, theirs.iter),
                "buckets": tracer.steps()[-1].bucket_count,
                "silent": [s.step for s in tracer.steps() if not s.wire_bytes],
            }
    return facts


def local_resume(rank: int) -> dict[str, bool]:
    """Continue from checkpoints before and after the start of local SGD."""
    group = pair()
    state = PostLocalSGDState(None, group, START)
    whole = Run(post_localSGD_hook, state, **ONE_LAYOUT).train(rank, range(20))
    facts = {}
    for cut in (5, 16):
        first = Run(post_localSGD_hook, PostLocalSGDState(None, group, START), **ONE_LAYOUT)
        first.train(rank, range(cut))
        second = resumed(first.saved(), post_localSGD_hook, subgroup=group)
        facts[f"step {cut}"] = torch.equal(second.train(rank, range(cut, 20)), whole[cut:])
    return facts


def local_machine(rank: int) -> dict[str, Any]:
    """Let the hook find the ranks of this machine, all four, on its first call; then unpickled."""
    reference = Run(default_hooks.allreduce_hook, None).train(rank, range(4))
    state = PostLocalSGDState(None, None, 2)
    run = Run(post_localSGD_hook, state)
    unmade = state.subgroup is None
    same = torch.equal(run.train(rank, range(4)), reference)
    copy = pickle.loads(pickle.dumps(state))
    lost = copy.subgroup is None
    Run(post_localSGD_hook, copy).train(rank, range(1))
    part = dist.new_group([0, 1, 2])
    try:
        if rank < 3:
            hooktrace.instrument(
                make_plain(part), post_localSGD_hook, PostLocalSGDState(part, None, 2)
            )
        refused = "outside"
    except ValueError as error:
        refused = str(error)
    hooktrace.default_tracer().close()
    return {
        "made in the first pass": unmade and state.subgroup is not None,
        "ranks": state.subgroup.size(),
        "same as all ranks": same,
        "made again": lost and copy.subgroup.size() == 4,
        "part of the job": refused,
    }


def local_hosts(rank: int) -> list[int]:
    """Return the ranks of this one's host, where the launcher did not say them: every other one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LOCAL_WORLD_SIZE")
        patch.setattr(socket, "gethostname", lambda: f"host{rank % 2}")
        state = PostLocalSGDState(None, None, 2)
        Run(post_localSGD_hook, state).train(rank, range(4))
    return dist.get_process_group_ranks(state.subgroup)


def make_plain(group: dist.ProcessGroup, dtype: torch.dtype | None = None) -> Any:
    """Return a DDP model of several buckets over a group."""
    return DistributedDataParallel(make_model().to(dtype), process_group=group, bucket_cap_mb=0.001)


def own_gradients(ddp: Any, rank: int, step: int, dtype: torch.dtype) -> torch.Tensor:
    """Return this rank's gradients of the batch that ``gossip_step`` will run, without DDP."""
    alone = make_model().to(dtype)
    alone.load_state_dict(ddp.module.state_dict())
    batch(alone, rank, step, dtype)
    return gradients(alone)


def batch(model: nn.Module, rank: int, step: int, dtype: torch.dtype) -> None:
    """Run one forward and backward pass on input that depends on rank and step."""
    torch.manual_seed(1000 * rank + step)
    model(torch.randn(4, 32).to(dtype)).square().sum().backward()


@scenario(apart=True)  # rank 3 makes a tracer fewer, and tracers know each other by their number
def gossip_exact(rank: int) -> dict[str, Any]:
    """Compare every step with (own + partner) / 2, by case; rank 3 is outside of the subgroup."""
    part = dist.new_group([0, 1, 2])
    cases: dict[str, dict[str, Any]] = {
        "four": {},
        "fixed": {"rotate": False},
        "view": {"view": True},
        "no_sync": {"accumulate": True},
        "float64": {"dtype": torch.float64},
        "float16": {"dtype": torch.float16},
        "bfloat16": {"dtype": torch.bfloat16},
        "three": {"group": part},
        "one": {"group": [dist.new_group([other]) for other in range(4)][rank]},
    }
    return {
        name: None if name == "three" and rank == 3 else gossip_case(rank, **case)
        for name, case in cases.items()
    }


def gossip_case(
    rank: int,
    *,
    group: dist.ProcessGroup | None = None,
    rotate: bool = True,
    view: bool = False,
    accumulate: bool = False,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Train with the gossip hook and return what each step did."""
    ddp = DistributedDataParallel(
        make_model().to(dtype),
        process_group=group,
        bucket_cap_mb=0.001,
        gradient_as_bucket_view=view,
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    state = GossipGradState(group, rotate=rotate, random_seed=2)
    ranks = dist.get_world_size(group)
    facts: dict[str, Any] = {"exact": [], "mean": [], "from": [], "apart": []}
    with Tracer() as tracer:
        hooktrace.instrument(ddp, gossip_grad_hook, state, tracer=tracer)
        for step in range(10):
            optimizer.zero_grad()
            own = own_gradients(ddp, rank, step, dtype)
            if accumulate:
                own += own_gradients(ddp, rank, 100 + step, dtype)
            _, source = state.partner()
            with ddp.no_sync() if accumulate else nullcontext():
                if accumulate:
                    batch(ddp, rank, 100 + step, dtype)
            batch(ddp, rank, step, dtype)
            everyone = [torch.empty_like(own) for _ in range(ranks)]
            dist.all_gather(everyone, own, group=group)
            got = gradients(ddp)
            expected = (own + everyone[source]) / 2
            if dtype is torch.float16:  # whose smallest numbers lose a bit when they are halved
                expected = own / 2 + everyone[source] / 2
            facts["exact"].append(torch.equal(got, expected))
            facts["from"].append(source)
            mean = got / ranks
            dist.all_reduce(mean, group=group)
            facts["mean"].append((mean - torch.stack(everyone).mean(0)).abs().max().item())
            optimizer.step()
            own = torch.cat([p.detach().flatten() for p in ddp.parameters()])
            dist.all_gather(everyone, own, group=group)
            facts["apart"].append(not torch.equal(own, everyone[0]))
        facts["bytes"] = [(b.wire_bytes, b.gradient_bytes) for b in tracer.buckets()]
        facts["kinds"] = {s.collective for b in tracer.buckets() for s in b.stages if s.collective}
        facts["buckets"] = tracer.steps()[-1].bucket_count
        facts["steps"] = state.step
    return facts


def gossip_resume(rank: int) -> dict[str, Any]:
    """Continue from a checkpoint in the middle of a round, with the same partners."""
    whole = Run(gossip_grad_hook, GossipGradState(random_seed=2), **ONE_LAYOUT)
    expected = whole.train(rank, range(14))[7:]
    first = Run(gossip_grad_hook, GossipGradState(random_seed=2), **ONE_LAYOUT)
    first.train(rank, range(7))
    second = resumed(first.saved(), gossip_grad_hook)
    return {
        "step": second.state.step,
        "same": torch.equal(second.train(rank, range(7, 14)), expected),
    }


def gossip_overflow(rank: int) -> bool:
    """Return whether gradients near float16's largest stay finite."""
    ddp = DistributedDataParallel(nn.Linear(4, 1, bias=False, dtype=torch.float16))
    ddp.register_comm_hook(GossipGradState(), gossip_grad_hook)
    ddp(torch.full((1, 4), 6e4, dtype=torch.float16)).sum().backward()
    return torch.equal(gradients(ddp), torch.full((4,), 6e4, dtype=torch.float16))
