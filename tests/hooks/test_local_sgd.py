"""What the state of post-local SGD accepts, and how it finds the ranks of a machine."""

from __future__ import annotations

import pickle

import pytest
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as torch_local

from hooktrace.hooks.local_sgd import PostLocalSGDState, post_localSGD_hook

OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("all", None, 3), TypeError, "process_group is a str; pass a torch.distributed"),
        (
            (None, OUTSIDE, 3),
            ValueError,
            "not in its subgroup; pass each rank the group that it is",
        ),
        ((None, None, -1), ValueError, "start_localSGD_iter is -1; pass 0 to start"),
        ((None, None, 2.5), TypeError, r"start_localSGD_iter is .* not 2.5; pass an int"),
        ((None, None, 3, 1), TypeError, "post_local_gradient_allreduce is 1; pass True or False"),
    ],
)
def test_bad_arguments_are_named(
    arguments: tuple[object, ...], error: type[Exception], message: str
) -> None:
    """Each error ends in what to pass."""
    with pytest.raises(error, match=message):
        PostLocalSGDState(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("launched", ["two", "0", "3"])
@pytest.mark.usefixtures("alone")
def test_an_unknown_machine_is_said_at_registration(
    monkeypatch: pytest.MonkeyPatch, launched: str
) -> None:
    """The error says what was found and what to pass instead."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", launched)
    with pytest.raises(ValueError, match=r"in a job of 1 ranks; pass .* the subgroup") as raised:
        post_localSGD_hook.check_state(PostLocalSGDState(None, None, 3))
    assert f"LOCAL_WORLD_SIZE is {launched!r}" in str(raised.value)
    post_localSGD_hook.check_state(PostLocalSGDState(None, None, 3, False))
    with pytest.raises(TypeError, match=r"post_localSGD_hook needs a PostLocalSGDState, not a int"):
        post_localSGD_hook.check_state(3)


def pickled(state: PostLocalSGDState) -> PostLocalSGDState:
    return pickle.loads(pickle.dumps(state))  # type: ignore[no-any-return]


@pytest.mark.usefixtures("alone")
def test_a_pickled_state_has_lost_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's subgroup is made again; one that was given has to be given again."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    group = dist.new_group([0])
    made = PostLocalSGDState(None, None, 3)
    made.make_subgroup()
    made.iter = 2
    again = pickled(pickled(made))
    assert isinstance(again, torch_local.PostLocalSGDState), "Lightning averages for no other"
    assert (again.process_group, again.subgroup, again.iter) == (None, None, 2)
    post_localSGD_hook.check_state(again)

    given = PostLocalSGDState(group, group, 3)
    copy = pickled(pickled(given))
    assert (copy.process_group, copy.subgroup, copy.start_localSGD_iter) == (None, None, 3)
    with pytest.raises(ValueError, match=r"is not pickled; set state\.subgroup to the group"):
        post_localSGD_hook.check_state(copy)
    copy.subgroup = group
    post_localSGD_hook.check_state(copy)
