"""The gossip topology, without a process group, and what the state refuses."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hooktrace.hooks.gossip import GossipGradState, gossip_grad_hook, partners, round_length

SIZES = range(1, 18)


@pytest.mark.parametrize("size", SIZES)
def test_a_round_is_the_logarithm_of_the_ranks(size: int) -> None:
    """ceil(log2 p): the least number of doublings that reaches p."""
    length = round_length(size)
    assert 2**length >= size
    assert length == 0 or 2 ** (length - 1) < size


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


@pytest.mark.parametrize("size", SIZES)
def test_rotation_makes_everyone_meet_everyone(size: int) -> None:
    """Without it, a rank receives from ceil(log2 p) others only."""

    def met(rotate: bool) -> set[int]:
        return {partners(0, size, step, rotate=rotate, seed=1)[1] for step in range(400)}

    assert met(True) == set(range(1, size)) or size == 1
    assert len(met(False) - {0}) == round_length(size)


def test_the_first_round_is_the_paper_s() -> None:
    """Positions are the ranks at first: distances 1, 2, 4."""
    assert [partners(3, 6, step) for step in range(3)] == [(4, 2), (5, 1), (1, 5)]


def test_the_seed_decides_the_partners() -> None:
    """The same seed gives the same partners in any process, another seed others."""
    assert [partners(0, 9, step, seed=7) for step in (4, 8, 12)] == [(8, 2), (4, 6), (1, 6)]
    rounds = [[partners(0, 9, step, seed=seed) for step in range(4, 40)] for seed in (7, 8)]
    assert rounds[0] != rounds[1]


def test_the_program_s_random_numbers_stay_as_they_are() -> None:
    """Drawing positions does not touch torch's generator or that of ``random``."""
    before = torch.get_rng_state(), random.getstate()
    partners(0, 5, 1000, seed=123456)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"process_group": "all"}, TypeError, "process_group is a str; pass a torch.distributed"),
        (
            {"process_group": dist.GroupMember.NON_GROUP_MEMBER},
            ValueError,
            "this rank is not in its process_group; pass each rank",
        ),
        ({"random_seed": 1.5}, TypeError, "random_seed is 1.5; pass an int"),
        ({"rotate": 1}, TypeError, "rotate is 1; pass True or False"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    """Each error ends in what to pass."""
    with pytest.raises(error, match=message):
        GossipGradState(**arguments)  # type: ignore[arg-type]


def test_another_state_and_complex_gradients_are_refused() -> None:
    """At registration, with the hook's name."""
    with pytest.raises(TypeError, match=r"gossip_grad_hook needs a GossipGradState, not a None"):
        gossip_grad_hook.check_state(None)
    with pytest.raises(TypeError, match=r"gossip_grad_hook takes dense .* weight are complex64"):
        gossip_grad_hook.check_model(nn.Linear(2, 2, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"gossip_grad_hook takes dense .* are sparse"):
        gossip_grad_hook.check_model(nn.Embedding(2, 2, sparse=True))
