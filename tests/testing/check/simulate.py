"""All ranks of an invented hook in this process, through the steps of the case ``arithmetic``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hooktrace.records import Transfer
from hooktrace.testing.check.arithmetic import NOT_KNOWN, chosen
from hooktrace.testing.check.series import Series
from hooktrace.testing.check.steps import Ledger, Step
from hooktrace.testing.check.training import MANY, Make, lengths_of_shapes
from hooktrace.testing.check.wire_format import format_of

from .invented import Hook, Rank

LENGTHS = lengths_of_shapes(MANY)
_BUCKETS = [sum(pair) for pair in zip(LENGTHS[::2], LENGTHS[1::2], strict=True)]
_SETTLED = 2
_GIVEN: dict[tuple[int, int], torch.Tensor] = {}
"""By number of ranks and step, which are the same for all hooks."""


def simulated(hook: Hook, size: int) -> Series:
    """Return the steps of a hook on that many ranks, and what it sent."""
    ledger = Ledger(LENGTHS)
    ranks = [[Rank(rank, size, bucket) for rank in range(size)] for bucket in range(len(_BUCKETS))]
    transfers: list[Transfer] = []
    count = 0

    def train(make: Make, phase: str) -> Step:
        nonlocal count
        given = _GIVEN.get((size, count))
        if given is None:
            rows = [[v.flatten() for v in make(r, count) if v is not None] for r in range(size)]
            given = _GIVEN[size, count] = torch.stack([torch.cat(row) for row in rows])
        results = []
        for place, gradients in enumerate(given.split(_BUCKETS, 1)):
            sent = transfers if count >= _SETTLED else []
            results.append(_run(hook, ranks[place], gradients, sent))
        step = ledger.step(count, torch.cat(results), given.double(), phase)
        count += 1
        return step

    steps = chosen(MANY, ledger, train)
    if not transfers:
        return Series(steps, NOT_KNOWN)
    return Series(steps, format_of(transfers, sum(LENGTHS) * (count - _SETTLED), size))


def _run(
    hook: Hook, ranks: Sequence[Rank], gradients: torch.Tensor, sent: list[Transfer]
) -> torch.Tensor:
    """Run one bucket on all ranks, and return the first one's result."""
    calls = [hook(rank, row.clone()) for rank, row in zip(ranks, gradients, strict=True)]
    given: Sequence[torch.Tensor | None] = [None] * len(calls)
    while True:
        asked, done = [], []
        for call, answer in zip(calls, given, strict=True):
            try:
                asked.append(next(call) if answer is None else call.send(answer))
            except StopIteration as end:
                done.append(end.value)
        if done:
            assert not asked
            for rank in ranks:
                rank.step += 1
            result: torch.Tensor = done[0]
            return result
        kind, first = asked[0]
        stacked = torch.stack([tensor for _, tensor in asked])
        if kind == "pass":
            given = list(stacked.roll(1, 0))
            continue
        sent.append(
            Transfer(
                collective=kind,
                dtype=str(first.dtype).removeprefix("torch."),
                wire_bytes=first.nbytes,
            )
        )
        answers = {"gather": stacked, "max": stacked.amax(0)}
        # As gloo does: one rank after another, in the tensors' own dtype.
        total = stacked[0].clone()
        for row in stacked[1:]:
            total += row
        answer = answers.get(kind, total)
        given = [answer.clone() for _ in calls]
