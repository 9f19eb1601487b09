"""Hooks of FSDP's collectives, called as FSDP calls them, with numbers that all ranks know.

    Make(rank, numel) --each rank's own--> hook on the real group --> Call --flaw_of--> Flaw
                     +--every rank's, made here too--> what the result should be

No model is needed: a hook is given flat tensors, and returns one.  Each element at an end of a
rank's part is as large as the largest, so that one that is lost cannot be taken for rounding.

A result is right within what its wire format loses (``wire_format.py``).  Of one that is not it is
asked whose numbers are in it, how often (least squares), and which elements at the ends are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ...fsdp.hooks import Gathering, Reduction, ScatterHook
from ...records import Transfer
from ...staging.driver import Steps
from ...staging.operation import Operation
from ...staging.synchronous import run_synchronously
from .rank import Context
from .steps import Flaw, distance, fit
from .wire_format import WireFormat, format_of

Make = Callable[[int, int], torch.Tensor]
"""``(rank, numel)`` to what that rank gives to a hook, flat."""

_LARGE = 3.0
_LOST = 0.5
"""Of an element at an end, which is as large as any."""

_EXPLAINED = 0.1
_ALIKE = 0.05
_ABSENT = 0.25

_DIVIDE = "divide by reduction.divisor, once, and by nothing else: FSDP asks for what it needs"
_PAD = "look at how the part is cut into channels, and at the last one, which may be shorter"


class Call(NamedTuple):
    """One collective on one rank, in float64.

    ``result``, ``expected``: (rows, part), the one row of a reduce-scatter, or a row a rank of an
    all-gather.  ``given``: (ranks, part), what each rank has given for this.  ``divisor``: of the
    sum, ``None`` where parameters are gathered.  ``ratio``: bytes of the elements over bytes that
    were sent, inf where nothing was.
    """

    result: torch.Tensor
    expected: torch.Tensor
    given: torch.Tensor
    divisor: float | None
    dtype: torch.dtype
    wire: WireFormat
    ratio: float


def numbers(seed: int, size: float = 1.0) -> Make:
    """Return what makes normal numbers, others for each rank, with large ones at a part's ends."""

    def make(rank: int, numel: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1009 * seed + rank)
        made = torch.randn(numel, generator=generator).clamp(-_LARGE, _LARGE)
        ranks = dist.get_world_size()
        for part in made.chunk(ranks) if numel >= ranks else (made,):
            part[0], part[-1] = _LARGE, -_LARGE if len(part) > 1 else _LARGE
        return made * size

    return make


def call(
    context: Context,
    part: int,
    make: Make,
    *,
    unit: str = "unit",
    divisor: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Call:
    """Run the hook once.

    ``part``: elements of a rank's part of a reduce-scatter, or that it has of an all-gather.
    ``divisor``: of an average, by default.
    """
    hook, group, rank, size = context.loaded.hook, dist.group.WORLD, context.rank, context.size
    assert group is not None
    is_scatter = isinstance(hook, ScatterHook)
    numel = size * part if is_scatter else part
    given = torch.stack([make(each, numel).to(dtype) for each in range(size)])
    asked: Reduction | Gathering
    if is_scatter:
        divisor = float(size) if divisor is None else divisor
        result = given.new_empty(part)
        asked = Reduction(given[rank].clone(), result, group, divisor, unit)
        wide = given.view(size, size, part)[:, rank].double()
        expected = wide.sum(0, keepdim=True) / divisor
    else:
        result = given.new_full((size * part,), torch.nan)
        own = result.view(size, part)[rank]
        own.copy_(given[rank])
        asked = Gathering(own, result, group, unit)
        expected = wide = given.double()
    sent: list[Transfer] = []
    steps = _watched(hook.steps(asked), sent)
    found = run_synchronously(hook.name, steps, hook, asked, None, result.numel())
    if found is not result:
        result.copy_(found)
    wire_bytes = sum(one.wire_bytes for one in sent)
    return Call(
        result.view(-1, part).double(),
        expected,
        wide,
        divisor,
        dtype,
        format_of(sent, numel, size),
        numel * dtype.itemsize / wire_bytes if wire_bytes else math.inf,
    )


def _watched(steps: Steps, sent: list[Transfer]) -> Generator[Operation, Any, torch.Tensor]:
    """Run a hook's generator, and take note of what its collectives send."""
    value: Any = None
    while True:
        try:
            operation = steps.send(value)
        except StopIteration as stop:
            result: torch.Tensor = stop.value
            return result
        known = operation.describe()
        if known is not None:
            dtype = str(known.dtype).removeprefix("torch.")
            sent.append(Transfer(collective=known.kind, dtype=dtype, wire_bytes=known.wire_bytes))
        value = yield operation


def flaw_of(call: Call, wire: WireFormat, rank: int) -> Flaw | None:
    """Return what is wrong with a call of finite numbers, as one rank sees it."""
    is_sum, part = call.divisor is not None, call.given.shape[1]
    if not call.result.isfinite().all():
        nan, inf = int(call.result.isnan().sum()), int(call.result.isinf().sum())
        given, remedy = (
            (
                f"gradients of {call.given.numel()} elements",
                "look at casts, and at divisions by a range",
            )
            if is_sum
            else (
                f"parameters of {part} elements a rank",
                "write all of gathering.whole, from every rank",
            )
        )
        what = f"finite {given} gave {nan} NaN and {inf} inf among {call.result.numel()} elements"
        return Flaw(what, remedy, kind="nonfinite_result")
    return _wrong_sum(call, wire) if is_sum else _wrong_whole(call, wire, rank)


def _wrong_sum(call: Call, wire: WireFormat) -> Flaw | None:
    """The sum over ranks / divisor is there, all elements of it."""
    (result,), (expected,), divisor = call.result, call.expected, call.divisor
    assert divisor is not None
    if not expected.any():
        what = f"gradients of zeros gave up to {result.abs().max().item():.2g}"
        return Flaw(what, "give zeros for zeros") if result.any() else None
    ends, off = _wrong_ends(result, expected), distance(result, expected)
    if off <= wire.tolerance(call.given, call.dtype) and not ends:
        return None
    factors = fit(call.given, result)
    if factors is not None and distance(result, factors @ call.given) <= _EXPLAINED:
        named = _named(factors * divisor, divisor)
        if named is not None:
            return named
    if ends:
        return Flaw(f"of a part of {len(result)} elements {ends}", _PAD)
    return Flaw(
        f"a part of {len(result)} elements is {off:.2g} of its norm away from the sum over ranks / "
        f"{divisor:g}, which {wire.words} does not explain",
        "compare the result with the sum of what all ranks have for this part",
    )


def _wrong_whole(call: Call, wire: WireFormat, rank: int) -> Flaw | None:
    """Each rank's parameters are in its place."""
    rows = list(zip(call.result, call.expected, strict=True))
    off = [distance(row, due) for row, due in rows]
    explained = [wire.tolerance(due[None], call.dtype) for due in call.expected]
    for place, (row, due) in enumerate(rows):
        ends = _wrong_ends(row, due)
        if off[place] <= explained[place] and not ends:
            continue
        others = [i for i in range(len(rows)) if i != place]
        taken = next((i for i in others if distance(row, call.expected[i]) <= explained[i]), None)
        if due.any() and taken is not None:
            what = f"in the place of rank {place}'s parameters there are rank {taken}'s"
            remedy = "row i of an all-gather is rank i's, and so is row i of gathering.whole"
        elif ends:
            what, remedy = f"of rank {place}'s {len(due)} parameters {ends}", _PAD
        else:
            what = (
                f"rank {place}'s {len(due)} parameters are {off[place]:.2g} of their norm off, "
                f"which {wire.words} does not explain"
            )
            remedy = "compare gathering.whole with what all ranks have given"
        return Flaw(what, remedy, kind="wrong_parameters")
    if off[rank] == 0 and len(off) > 1 and all(off[:rank] + off[rank + 1 :]):
        return Flaw(
            f"rank {rank} keeps its own parameters as they are, and decodes the others', so that "
            "each rank computes with another model",
            "decode this rank's own row of the all-gather too",
            kind="replicas_diverge",
        )
    return None


def _named(shares: torch.Tensor, divisor: float) -> Flaw | None:
    """Return what weights of the ranks in a sum mean, which should be 1."""
    ranks = len(shares)
    largest = shares.abs().max().item()
    missing = [place for place, share in enumerate(shares) if share.abs() < _ABSENT * largest]
    if missing:
        what = (
            f"the gradients of rank(s) {', '.join(map(str, missing))} are not in this rank's part"
        )
        return Flaw(what, "add what all ranks have sent, this one too", kind="ranks_missing")
    times = shares.mean().item()
    if (shares - times).abs().max() > _ALIKE * abs(times) or abs(times - 1) <= _ALIKE:
        return None
    kinds = {
        divisor: ("not_averaged", f"is the sum over ranks, which is not divided by {divisor:g}"),
        1 / divisor: ("averaged_twice", f"is the sum over ranks, divided by {divisor:g} twice"),
        divisor / ranks: ("wrong_scale", f"is divided by the {ranks} ranks, not by {divisor:g}"),
    }
    kind = "wrong_sign" if times < 0 else "wrong_scale"
    otherwise = kind, f"is {times:.3g} times the sum over ranks / {divisor:g}"
    near = (known for factor, known in kinds.items() if math.isclose(times, factor, rel_tol=_ALIKE))
    kind, what = next(near, otherwise)
    return Flaw(f"the result {what}", _DIVIDE, kind=kind)


def _wrong_ends(result: torch.Tensor, expected: torch.Tensor) -> str:
    """Return which elements at the ends are not what they should be, in words; none for ``""``."""
    if not expected.any():
        return ""
    wrong = (result - expected).abs() > _LOST * expected.abs()
    for word, flags, place in (("last", wrong.flip(0), -1), ("first", wrong, 0)):
        if not flags[0] or expected[place].abs() < _LOST * expected.abs().max():
            continue
        count = len(flags) if flags.all() else int(flags.long().argmin())
        which = f"the {word} one is" if count == 1 else f"the {word} {count} are"
        got, due = result[place].item(), expected[place].item()
        return f"{which} wrong: {got:.3g} in the place of {due:.3g}"
    return ""
