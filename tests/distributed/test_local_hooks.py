"""Post-local SGD and gossip on 4 real gloo ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as torch_local
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, trace
from hooktrace.hooks.gossip import GossipGradState, gossip_grad_hook
from hooktrace.hooks.local_sgd import PostLocalSGDState, post_localSGD_hook
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, gradients, make_ddp, make_model
from tests.distributed.test_optimizer_hooks import equal_runs, run

pytestmark = pytest.mark.slow

STEPS, START = 30, 12


def train(hook: Callable[..., Any], rank: int, state: Any, **options: Any) -> list[torch.Tensor]:
    """Train, with averaging from ``START`` on; return parameters and gradients of each step."""
    ddp = make_ddp(bucket_cap_mb=0.001, **options)
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3, momentum=0.9)
    averager = PeriodicModelAverager(4, START)

    def step() -> None:
        optimizer.step()
        averager.average_parameters(ddp.parameters())

    return run(ddp, rank, step, range(STEPS))


@on(4)
def test_post_local_sgd_has_torch_s_bits(rank: int) -> None:
    """Gradients and parameters of 30 steps with averaging, local SGD from the middle on."""
    (group, _), world = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]]), dist.group.WORLD
    for arguments, options, count in (
        ((None, group, START), {}, START),
        ((world, group, START, False), {"static_graph": True}, START),
        ((None, group, 0), {"gradient_as_bucket_view": True}, 0),
    ):
        theirs = torch_local.PostLocalSGDState(*arguments)
        expected = train(torch_local.post_localSGD_hook, rank, theirs, **options)
        ours = PostLocalSGDState(*arguments)
        with Tracer() as tracer:
            seen = train(trace(post_localSGD_hook, tracer=tracer), rank, ours, **options)
            steps = tracer.steps()
        assert equal_runs(seen, expected)
        assert (ours.iter, theirs.iter) == (count, count)
        assert steps[-1].bucket_count >= 6
        silent = [step.step for step in steps if not step.wire_bytes]
        assert silent == (list(range(START, STEPS)) if False in arguments[3:] else [])


def own_gradients(ddp: Any, rank: int, step: int, dtype: torch.dtype) -> torch.Tensor:
    """Return this rank's gradients of the batch that ``gossip_step`` will run, without DDP."""
    alone = make_model().to(dtype)
    alone.load_state_dict(ddp.module.state_dict())
    backward(alone, rank, step, dtype=dtype)
    return gradients(alone)


def gossip(
    rank: int,
    *,
    group: dist.ProcessGroup | None = None,
    rotate: bool = True,
    accumulate: bool = False,
    dtype: torch.dtype = torch.float32,
) -> list[int]:
    """Train with the gossip hook: each step is (own + partner) / 2 to the bit; return partners."""
    ddp = DistributedDataParallel(
        make_model().to(dtype),
        process_group=group,
        bucket_cap_mb=0.001,
        gradient_as_bucket_view=accumulate,
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    state = GossipGradState(group, rotate=rotate, random_seed=2)
    partners = []
    with Tracer() as tracer:
        hooktrace.instrument(ddp, gossip_grad_hook, state, tracer=tracer)
        for step in range(10):
            optimizer.zero_grad()
            own = own_gradients(ddp, rank, step, dtype)
            if accumulate:
                own += own_gradients(ddp, rank, 100 + step, dtype)
                with ddp.no_sync():
                    backward(ddp, rank, 100 + step, dtype=dtype)
            _, source = state.partner()
            partners.append(source)
            backward(ddp, rank, step, dtype=dtype)
            everyone = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
            dist.all_gather(everyone, own, group=group)
            assert torch.equal(gradients(ddp), own / 2 + everyone[source] / 2)
            optimizer.step()
        found = tracer.buckets()
        assert tracer.steps()[-1].bucket_count >= 6
    assert state.step == 10
    kinds = {s.collective for b in found for s in b.stages if s.collective}
    assert kinds == {"send_recv"}
    assert [b.wire_bytes for b in found] == [b.gradient_bytes for b in found]
    return partners


@on(4)
@scenario(apart=True)  # rank 3 makes a tracer fewer, and tracers know each other by their number
def test_gossip_averages_with_one_partner(rank: int) -> None:
    """Distances are 1 and 2 in turn, with rotation others too; rank 3 is outside of a subgroup."""
    rotated = gossip(rank)
    assert rotated[:2] == [(rank - 1) % 4, (rank - 2) % 4]
    assert set(rotated) == set(range(4)) - {rank}
    fixed = gossip(rank, rotate=False)
    assert fixed == [(rank - (1, 2)[step % 2]) % 4 for step in range(10)]
    gossip(rank, accumulate=True, dtype=torch.float64)
    gossip(rank, dtype=torch.float16)
    part = dist.new_group([0, 1, 2])
    if rank < 3:
        gossip(rank, group=part)
