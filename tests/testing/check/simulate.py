"""All ranks of an invented hook in this process, through the scenario of chosen gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from hooktrace.records import Transfer
from hooktrace.testing.check.calls import Call, play
from hooktrace.testing.check.gradients import CHOSEN, MANY, Phases, lengths_of_shapes
from hooktrace.testing.check.runs import Run, Who
from hooktrace.testing.check.scenarios import asked_of
from hooktrace.testing.check.wire_format import format_of

from .invented import Hook, Rank

LENGTHS = lengths_of_shapes(MANY)
_BUCKETS = [sum(pair) for pair in zip(LENGTHS[::2], LENGTHS[1::2], strict=True)]


class Simulated(Call):
    """A hook on that many ranks, each with its own state for each bucket.

    ``sent``: what one rank has sent since the first two steps.
    """

    def __init__(self, hook: Hook, size: int) -> None:
        super().__init__(MANY, size)
        self._hook = hook
        self._ranks = [[Rank(r, size, bucket) for r in range(size)] for bucket in range(8)]
        self._step = 0
        self.sent: list[Transfer] = []

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the first rank's result."""
        self._step += 1
        sent = self.sent if self._step > 2 else []
        parts = zip(self._ranks, rows.split(_BUCKETS, 1), strict=True)
        return torch.cat([_run(self._hook, ranks, given, sent) for ranks, given in parts])


def simulated(
    hook: Hook, size: int, asked: Sequence[Who] | None = None, phases: Phases = CHOSEN
) -> list[Run]:
    """Return the runs of a hook on that many ranks, and what it sent."""
    runs = []
    for who in asked or asked_of(size):
        call = Simulated(hook, size)
        run = play(Run(who, LENGTHS, size, float(size)), call, phases)
        if call.sent:
            run.wire = format_of(call.sent, sum(LENGTHS) * (len(run.steps) - 2), size)
        runs.append(run)
    return runs


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
        dtype = str(first.dtype).removeprefix("torch.")
        sent.append(Transfer(collective=kind, dtype=dtype, wire_bytes=first.nbytes))
        # As gloo does: one rank after another, in the tensors' own dtype.
        total = functools.reduce(torch.add, stacked)
        answer = {"gather": stacked, "max": stacked.amax(0)}.get(kind, total)
        given = [answer.clone() for _ in calls]
