"""What a plain hook issues, as process groups tell it: their words, and stretches of time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from hooktrace.staging import group_hooks
from hooktrace.staging.calls import NOT_YET, Collective, Round, joined, one_after_another
from hooktrace.staging.groups import GroupInfo

GROUP = object.__new__(GroupInfo)


def made(kind: str, size: int, issued: int, arrived: int | None, dtype: str = "float32") -> Round:
    """Return a round."""
    return Round(Collective(kind, size, dtype, GROUP), issued, arrived)


def test_torchs_words() -> None:
    """Those of 2.14 and those that 2.15 tells apart."""
    words = {
        "all_reduce": ("ALLREDUCE", "ALLREDUCE_COALESCED"),
        "all_gather": ("ALLGATHER_BASE",),
        "reduce_scatter": ("REDUCE_SCATTER_TENSOR_COALESCED",),
        "all_to_all": ("ALLTOALL_BASE",),
        "reduce": ("REDUCE",),
        "broadcast": ("BROADCAST",),
        "send": ("SEND",),
    }
    for ours, theirs in words.items():
        assert {group_hooks._kind_of(word) for word in theirs} == {ours}


def test_rounds_that_follow_each_other_stay() -> None:
    """One may begin at the very moment at which the one before it ended."""
    rounds = [made("all_reduce", 4, 10, 20), made("all_gather", 8, 20, 30)]
    assert one_after_another(rounds, 40) == tuple(rounds)


def test_rounds_that_are_under_way_at_once_are_one() -> None:
    """With all that they send; the third begins when the longer one of the first two has ended."""
    rounds = [
        made("all_reduce", 4, 10, 40),
        made("all_gather", 8, 20, 30, "uint8"),
        made("all_reduce", 1, 40, 50),
    ]
    both = Round(Collective("all_gather+all_reduce", 12, "float32+uint8", GROUP), 10, 40)
    assert one_after_another(rounds, 60) == (both, rounds[2])
    assert joined(["float32+uint8", "torch.float32", "bool"]) == "bool+float32+uint8"


def test_no_round_ends_after_its_call() -> None:
    """Of one that has not arrived, or that arrives later, the rest is none of the call's."""
    rounds = [made("all_reduce", 4, 10, 20), made("all_reduce", 4, 30, 90)]
    assert one_after_another(rounds, 50)[-1].arrived_ns == 50
    assert one_after_another([made("all_reduce", 4, 10, None)], 50)[0].arrived_ns == 50
    assert one_after_another([made("all_reduce", 4, 10, None)], NOT_YET)[0].arrived_ns is None


class Group:
    """A process group's registry; ``issue`` goes through it as torch does."""

    def __init__(self) -> None:
        self.before: dict[int, Callable[[Any], None]] = {}
        self.after: dict[int, Callable[[Any], None]] = {}
        self.register_pre_hook = self.before.__setitem__
        self.register_post_hook = self.after.__setitem__
        self.unregister_pre_hook = self.before.pop
        self.unregister_post_hook = self.after.pop

    def issue(self) -> None:
        for hooks in (self.before, self.after):  # a change meanwhile raises, as torch's crashes
            for hook in hooks.values():
                hook(None)


class Around:
    """What is called around a collective, and does something in it."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.act = act

    def before(self, _args: Any) -> None:
        self.act()

    def after(self, _args: Any) -> None:
        return


def registered(group: Group, around: Around) -> group_hooks.Registration:
    as_torchs: Any = group
    return group_hooks.Registration(as_torchs, around.before, around.after)


def on_another_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_hooks_are_taken_off_by_the_thread_that_issues() -> None:
    """The collector may want to on the drain's, while the other one is within a collective."""
    group = Group()
    hooks = registered(group, Around())
    on_another_thread(hooks.remove)
    assert len(group.before) == len(group.after) == 1
    on_another_thread(group_hooks.take_off_left)
    assert len(group.before) == 1
    group_hooks.take_off_left()
    assert (group.before, group.after) == ({}, {})


def test_what_is_around_a_whole_script_issues_nothing() -> None:
    """``@record`` of torch's launcher leaves a frame of torch.distributed below all others."""
    group = Group()
    hooks = registered(group, Around())
    path = f"{os.path.dirname(dist.__file__)}/elastic/multiprocessing/errors/__init__.py"
    exec(compile("remove()", path, "exec"), {"remove": hooks.remove})
    assert (group.before, group.after) == ({}, {})


def test_hooks_are_not_taken_off_within_a_collective() -> None:
    """Nor by what another registration has torch call around it."""
    group, taken = Group(), Around()
    hooks = registered(group, taken)
    other = registered(group, Around(hooks.remove))
    group.issue()
    assert len(group.before) == 2
    registered(Group(), Around()).remove()
    assert list(group.before) == list(group.after) == [max(group.before)]
    other.remove()
    assert (group.before, group.after) == ({}, {})
