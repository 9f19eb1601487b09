"""All ranks of an invented hook in this process, through the scenario of chosen gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from hooktrace.records import Transfer
from hooktrace.testing.check.gradients import CHOSEN, MANY, Phases, Who, lengths_of_shapes
from hooktrace.testing.check.runs import Run
from hooktrace.testing.check.scenarios import asked_of
from hooktrace.testing.check.wire_format import format_of

from .invented import Hook, Rank

LENGTHS = lengths_of_shapes(MANY)
_BUCKETS = [sum(pair) for pair in zip(LENGTHS[::2], LENGTHS[1::2], strict=True)]


def simulated(
    hook: Hook, size: int, asked: Sequence[Who] | None = None, phases: Phases = CHOSEN
) -> list[Run]:
    """Return the runs of a hook on that many ranks, each with its own state for each bucket."""
    whose = asked or asked_of(size)
    runs = [Run(who, MANY, LENGTHS, size, float(size)) for who in whose]
    return [_played(hook, run, phases) for run in runs]


def _played(hook: Hook, run: Run, phases: Phases) -> Run:
    buckets = [[Rank(r, run.ranks, bucket) for r in range(run.ranks)] for bucket in range(8)]
    sent: list[list[Transfer]] = []

    def call(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sent.append([])
        parts = zip(buckets, torch.split(rows, _BUCKETS, 1), strict=True)
        return torch.cat([_run(hook, ranks, given, sent[-1]) for ranks, given in parts]), rows

    run.play(call, phases)
    if late := [transfer for of_step in sent[2:] for transfer in of_step]:
        run.wire = format_of(late, sum(LENGTHS) * len(sent[2:]), run.ranks)
    return run


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
