"""From which step on a command holds on all ranks, and how long it may take."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from hooktrace.ranks.channel.messages import encode
from hooktrace.ranks.channel.node import Answers
from hooktrace.ranks.control.commands import (
    Command,
    CommandResult,
    Done,
    Verb,
    carry_out,
    first_steps,
)


def outcome(**steps: tuple[int, ...]) -> CommandResult:
    """Return what ranks say of the steps of models, rank by rank."""
    by_rank = enumerate(zip(*steps.values(), strict=True))
    ranks = {rank: Done(steps=dict(zip(steps, at, strict=True))) for rank, at in by_rank}
    return CommandResult(ranks=ranks)


def test_it_is_ahead_of_the_foremost_rank_by_what_it_makes_meanwhile() -> None:
    """Twice as many steps as it made while it was asked, and some; of a new model just some."""
    before, after = outcome(a=(100, 104), b=(3, 2)), outcome(a=(110, 124), b=(3, 3), c=(5, 0))
    assert first_steps(before, after) == {"a": 124 + 2 * 20 + 8, "b": 3 + 8, "c": 5 + 8}


@pytest.mark.parametrize("verb", [verb for verb in get_args(Verb) if verb != "flush"])
def test_ranks_that_do_not_answer_hold_a_command_up_for_less_than_two_seconds(verb: Verb) -> None:
    """Also where they are asked for their steps before."""
    waited: list[float] = []

    class Asked:
        """A node whose ranks never answer."""

        async def gather(self, name: str, argument: bytes, timeout_s: float) -> Answers[bytes]:
            waited.append(timeout_s)
            return Answers()

    asyncio.run(carry_out(Asked(), encode(Command(verb=verb, number=1))))
    assert sum(waited) < 2
