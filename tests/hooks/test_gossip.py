"""The gossip topology, without a process group, and what the state refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hooktrace.hooks.gossip import GossipGradState, gossip_grad_hook, partners, round_length

SIZES = range(1, 18)


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_each_step_is_a_permutation_that_all_ranks_agree_on(size: int, rotate: bool) -> None:
    """Whom a rank sends to receives from it, and nobody is its own partner."""
    for step in range(40):
        pairs = [partners(rank, size, step, rotate=rotate, seed=5) for rank in range(size)]
        assert sorted(send_to for send_to, _ in pairs) == list(range(size))
        for rank, (send_to, receive_from) in enumerate(pairs):
            assert pairs[send_to][1] == rank
            assert pairs[receive_from][0] == rank
            assert size == 1 or rank not in (send_to, receive_from)


@pytest.mark.parametrize("size", SIZES)
def test_a_round_carries_everything_to_everyone(size: int) -> None:
    """After ceil(log2 p) steps of any round, not before, each rank has heard of all others."""
    length = round_length(size)
    for turn in range(10):
        known = torch.eye(size, dtype=torch.bool)  # known[i, j]: rank i has heard of rank j
        for step in range(turn * length, (turn + 1) * length):
            assert not known.all()
            sources = [partners(rank, size, step, seed=3)[1] for rank in range(size)]
            known = known | known[sources]
        assert known.all()

    def met(rotate: bool) -> set[int]:
        return {partners(0, size, step, rotate=rotate, seed=1)[1] for step in range(400)} - {0}

    assert met(True) == set(range(1, size))
    assert len(met(False)) == length


def test_the_first_round_is_the_paper_s_and_the_seed_decides_the_others() -> None:
    """Distances 1, 2, 4; the same partners for a seed, and the program's own numbers stay."""
    before = torch.get_rng_state(), random.getstate()
    assert [partners(3, 6, step) for step in range(3)] == [(4, 2), (5, 1), (1, 5)]
    assert [partners(0, 9, step, seed=7) for step in (4, 8, 12)] == [(8, 2), (4, 6), (1, 6)]
    assert [partners(0, 9, step, seed=8) for step in (4, 8, 12)] != [(8, 2), (4, 6), (1, 6)]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


COMPLEX, SPARSE = nn.Linear(2, 2, dtype=torch.complex64), nn.Embedding(2, 2, sparse=True)
OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (GossipGradState, "all", "process_group is a str; pass a torch.distributed"),
        (GossipGradState, OUTSIDE, "this rank is not in its process_group; pass each rank"),
        (partial(GossipGradState, random_seed=1.5), None, "random_seed is 1.5; pass an int"),
        (partial(GossipGradState, rotate=1), None, "rotate is 1; pass True or False"),
        (gossip_grad_hook.check_state, None, "hook needs a GossipGradState, not a None"),
        (gossip_grad_hook.check_model, COMPLEX, "hook takes dense .* weight are complex64"),
        (gossip_grad_hook.check_model, SPARSE, "gossip_grad_hook takes dense .* are sparse"),
    ],
)
def test_what_it_does_not_take_is_named(
    make: Callable[[Any], object], given: Any, message: str
) -> None:
    """When a state is made, or at registration; each error ends in what to pass."""
    with pytest.raises((TypeError, ValueError), match=message):
        make(given)
