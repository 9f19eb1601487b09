"""What a plain hook issues, as process groups tell it: their words, and stretches of time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.staging import group_hooks
from hooktrace.staging.calls import NOT_YET, Collective, Round, one_after_another
from hooktrace.staging.groups import GroupInfo

GROUP = object.__new__(GroupInfo)
WORDS = {
    "all_reduce": ("ALLREDUCE", "ALLREDUCE_COALESCED"),
    "all_gather": ("ALLGATHER_BASE",),
    "reduce_scatter": ("REDUCE_SCATTER_TENSOR_COALESCED",),
    "reduce": ("REDUCE",),
    "send": ("SEND",),
}
"""torch's, those of 2.14 and those that 2.15 tells apart."""


@pytest.mark.parametrize("ours", WORDS)
def test_torchs_words(ours: str) -> None:
    assert {group_hooks._kind_of(word) for word in WORDS[ours]} == {ours}


def made(kind: str, size: int, issued: int, arrived: int, dtype: str = "float32") -> Round:
    """Return a round."""
    return Round(Collective(kind, size, dtype, GROUP), issued, arrived)


A, B, C = made("all_reduce", 4, 10, 20), made("all_gather", 8, 20, 30), made("send", 1, 40, 50)
LONG, INSIDE = made("all_reduce", 4, 10, 40), made("all_gather", 8, 20, 30, "uint8")
BOTH = made("all_gather+all_reduce", 12, 10, 40, "float32+uint8")


@pytest.mark.parametrize(
    ("rounds", "done", "apart"),
    [
        ([A, B], 40, [A, B]),  # one may begin at the very moment at which the one before has ended
        ([LONG, INSIDE, C], 60, [BOTH, C]),  # those that are under way at once are one
        ([A, B, C], 45, [A, B, replace(C, arrived_ns=45)]),  # none ends after its call
        ([replace(A, arrived_ns=NOT_YET)], 50, [replace(A, arrived_ns=50)]),
        ([replace(A, arrived_ns=NOT_YET)], NOT_YET, [replace(A, arrived_ns=NOT_YET)]),
    ],
)
def test_rounds_one_after_another(rounds: list[Round], done: int, apart: list[Round]) -> None:
    assert one_after_another(rounds, done) == tuple(apart)
