"""What a plain hook issues, as process groups tell it: their words, and stretches of time."""

from __future__ import annotations

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
