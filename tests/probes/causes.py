"""What hooks may do to gradients, simulated on all ranks, and what each may be called.

CONDITIONS: gradients of every rank, step by step --> CAUSES: results of every rank --> names
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

COUNT = 512


@dataclass
class Hook:
    """What a simulated hook has: this step's number, random numbers, and memory between steps."""

    dtype: torch.dtype
    step: int = 0
    random: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(1))
    memory: dict[str, torch.Tensor] = field(default_factory=dict)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def fed_back(
        self, given: torch.Tensor, lossy: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return what ``lossy`` makes of a tensor and of what it has left out so far."""
        wanted = given + self.memory.get("left", torch.zeros_like(given))
        sent = lossy(wanted)
        self.memory["left"] = wanted - sent
        return sent

    def before(self, name: str, now: torch.Tensor) -> torch.Tensor:
        """Return a tensor as it was at the step before; at the first step as it is."""
        before = self.memory.get(name, now)
        self.memory[name] = now
        return before


Gradients = torch.Tensor
"""Of shape (ranks, count), float64, with values of the dtype."""

Function = Callable[[Gradients, Hook], torch.Tensor]
"""To the result of all ranks, (count,), or of each, (ranks, count)."""


def mean(g: Gradients, h: Hook) -> torch.Tensor:
    """Divide, then add up in the dtype, as gloo does."""
    total = torch.zeros(g.shape[1], dtype=h.dtype)
    for own in g:
        total = total + (own / len(g)).to(h.dtype)
    return total.double()


def total(g: Gradients, h: Hook) -> torch.Tensor:
    """Add up in the dtype."""
    added = torch.zeros(g.shape[1], dtype=h.dtype)
    for own in g:
        added = added + own.to(h.dtype)
    return added.double()


def quantised(x: torch.Tensor, bits: int = 8, shift: int = 0) -> torch.Tensor:
    """Round to as many levels between the smallest and the largest value."""
    step = (x.max() - x.min()) / (2**bits - 1)
    return ((x / step).round() + shift) * step if step else x


def largest(x: torch.Tensor, share: float) -> torch.Tensor:
    """Keep the share of elements with the largest magnitudes."""
    kept = x.abs().topk(max(1, int(share * x.numel()))).indices
    return torch.zeros_like(x).index_copy(0, kept, x[kept])


def low_rank(x: torch.Tensor, rank: int) -> torch.Tensor:
    """Keep the largest singular values of the values as a matrix."""
    u, s, v = torch.linalg.svd(x.view(16, -1), full_matrices=False)
    return (u[:, :rank] * s[:rank] @ v[:rank]).flatten()


def rows(function: Callable[[torch.Tensor], torch.Tensor], g: Gradients) -> Gradients:
    """Apply a function to each rank's gradients."""
    return torch.stack([function(own) for own in g])


def clip_norm(x: torch.Tensor, norm: torch.Tensor | float, longest: float) -> torch.Tensor:
    """Scale as ``clip_grad_norm_`` does; ``longest`` is of a gradient with elements of size 1."""
    norm = float(norm) / math.sqrt(x.numel())
    return x * min(1.0, longest / norm) if norm else x


def weighted(g: Gradients, weights: torch.Tensor) -> torch.Tensor:
    """Average with weights; these are scaled to 1 on average."""
    return (g * (weights / weights.mean())[:, None]).mean(0)


def of_sign(x: torch.Tensor) -> torch.Tensor:
    """Keep signs, and one size."""
    return x.sign() * x.abs().mean()


def momentum(g: Gradients, h: Hook) -> torch.Tensor:
    """Add nine tenths of what was before."""
    h.memory["sum"] = 0.9 * h.memory.get("sum", torch.zeros(g.shape[1])) + mean(g, h)
    return h.memory["sum"]


def half_local(g: Gradients, h: Hook) -> torch.Tensor:
    """Average the last fifth only."""
    result, first = mean(g, h).expand_as(g).clone(), int(0.8 * g.shape[1])
    result[:, :first] = g[:, :first]
    return result


def neighbours(g: Gradients, h: Hook) -> torch.Tensor:
    """Average with the next rank only, as gossip does."""
    return (g + g.roll(1, 0)) / 2


class Cause(NamedTuple):
    """``names``: what it may be called with n ranks; of hooks that are right nothing.

    ``found``: it is named where ranks' gradients differ and nothing is rounded to 16 bits.
    """

    function: Function
    names: Callable[[int], set[str]] = lambda n: set()
    found: bool = False


def named(name: str, function: Function, *, found: bool = True) -> Cause:
    """Return a cause with one name for any number of ranks."""
    return Cause(function, lambda n: {name}, found)


def _gone(g: Gradients, h: Hook) -> torch.Tensor:
    """Average over the ranks that have any gradients, as under ``join``."""
    return g.sum(0) / max(1, int(g.any(1).sum()))


RIGHT: dict[str, Function] = {
    "average": mean,
    "divided after": lambda g, h: total(g, h) / len(g),
    "clip by norm": lambda g, h: clip_norm(mean(g, h), mean(g, h).norm(), 0.3),
    "clip each rank": lambda g, h: rows(lambda x: clip_norm(x, x.norm(), 0.5), g).mean(0),
    "normalise": lambda g, h: torch.nn.functional.normalize(mean(g, h), dim=0),
    "clamp at a tenth": lambda g, h: mean(g, h).clamp(-0.1, 0.1),
    "clamp each rank": lambda g, h: g.clamp(-1, 1).mean(0),
    "8 bits": lambda g, h: quantised(mean(g, h)),
    "8 bits each rank": lambda g, h: rows(quantised, g).mean(0),
    "8 bits, fed back": lambda g, h: h.fed_back(mean(g, h), quantised),
    "4 bits": lambda g, h: quantised(mean(g, h), 4),
    "1 bit": lambda g, h: of_sign(mean(g, h)),
    "majority of signs": lambda g, h: g.sign().sum(0).sign(),
    "float16": lambda g, h: rows(lambda x: (x / len(g)).half().double(), g).sum(0),
    "bfloat16": lambda g, h: rows(lambda x: (x / len(g)).bfloat16().double(), g).sum(0),
    "largest tenth": lambda g, h: largest(mean(g, h), 0.1),
    "largest of each rank": lambda g, h: rows(lambda x: largest(x, 0.1), g).mean(0),
    "rank 4": lambda g, h: low_rank(mean(g, h), 4),
    "noise of 1 %": lambda g, h: mean(g, h) * (1 + 0.01 * h.normal(g.shape[1])),
    "a step late": lambda g, h: h.before("m", mean(g, h)),
    "momentum": momentum,
    "moved by one": lambda g, h: mean(g, h).roll(1),
    "zeros": lambda g, h: torch.zeros(g.shape[1]),
    "maximum": lambda g, h: g.amax(0),
    "weights 1.2 and 0.8": lambda g, h: weighted(g, 1 + 0.2 * (-1.0) ** torch.arange(len(g))),
    "a tenth averaged": lambda g, h: 0.9 * g + 0.1 * mean(g, h),
    "one layer averaged": half_local,
    "over those that are there": _gone,
    "own noise": lambda g, h: mean(g, h) + 0.1 * g.abs().mean() * h.normal(*g.shape),
}
"""Right, lossy, local by design, or wrong in a way that has no name."""

CAUSES: dict[str, Cause] = {
    **{name: Cause(function) for name, function in RIGHT.items()},
    "sum": Cause(total, lambda n: {"not_averaged"}, found=True),
    "sum, 8 bits": named("not_averaged", lambda g, h: quantised(total(g, h))),
    "sum, noise of 1 %": named(
        "not_averaged", lambda g, h: total(g, h) * (1 + 0.01 * h.normal(g.shape[1]))
    ),
    "sum of each second element": Cause(lambda g, h: total(g, h) * (torch.arange(g.shape[1]) % 2)),
    "divided twice": named("averaged_twice", lambda g, h: mean(g, h) / len(g)),
    "loss scale of 3": Cause(lambda g, h: mean(g, h) / 3),
    "a third, 8 bits": Cause(lambda g, h: quantised(mean(g, h)) / 3),
    "minus": named("wrong_sign", lambda g, h: -mean(g, h)),
    "minus, 8 bits": named("wrong_sign", lambda g, h: quantised(-mean(g, h))),
    "minus the sum": named("wrong_sign", lambda g, h: -total(g, h)),
    "own": named("not_communicated", lambda g, h: g),
    "own, divided": named("not_communicated", lambda g, h: g / len(g)),
    "own, twice": named("not_communicated", lambda g, h: 2 * g),
    "own, clipped": named(
        "not_communicated", lambda g, h: rows(lambda x: clip_norm(x, x.norm(), 0.3), g)
    ),
    "own, a step late": named("not_communicated", lambda g, h: h.before("g", g), found=False),
    "own, 8 bits": named("not_communicated", lambda g, h: rows(quantised, g), found=False),
    "rank 0's": named("ranks_missing", lambda g, h: g[0]),
    "without the last": named("ranks_missing", lambda g, h: g[:-1].mean(0)),
    "half of the ranks": named("ranks_missing", lambda g, h: g[: len(g) // 2].mean(0)),
    "half of them, 8 bits": named(
        "ranks_missing", lambda g, h: quantised(g[: len(g) // 2].mean(0)), found=False
    ),
    "with a neighbour": Cause(
        neighbours, lambda n: {"ranks_missing"} if n > 2 else set(), found=False
    ),
}
"""Everything that is simulated."""


class Condition(NamedTuple):
    """Gradients of one step: from random numbers, the ranks' common ones, and the step.

    ``alike``: how the ranks' gradients correlate.  ``clear``: causes that are ``found`` are named.
    """

    make: Callable[[torch.Generator, int, int], torch.Tensor]
    alike: float = 0.5
    clear: bool = False


def draw(random: torch.Generator, *shape: int) -> torch.Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=random, dtype=torch.float64)


def correlated(alike: float) -> Condition:
    """Return gradients whose correlation is ``alike``, and whose size differs by step."""

    def make(random: torch.Generator, size: int, step: int) -> torch.Tensor:
        common, own = draw(random, COUNT), draw(random, size, COUNT)
        return (alike**0.5 * common + (1 - alike) ** 0.5 * own) * (1 + 0.3 * math.sin(step + 1))

    return Condition(make, alike, clear=alike < 0.9)


def _times(
    factor: Callable[[torch.Generator, int], torch.Tensor | float], alike: float = 0.5
) -> Condition:
    usual = correlated(alike).make

    def make(random: torch.Generator, size: int, step: int) -> torch.Tensor:
        return usual(random, size, step) * factor(random, size)

    return Condition(make, alike)


def _constant(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    return correlated(0.5).make(torch.Generator().manual_seed(size), size, 0)


def _opposed(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    own = draw(random, size, COUNT)
    return own - 0.9 * own.mean(0)


def _one_is_gone(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    made = correlated(0.5).make(random, size, step)
    made[-1] = 0
    return made


CONDITIONS: dict[str, Condition] = {
    "unlike": correlated(0.0),
    "half alike": correlated(0.5),
    "nearly alike": correlated(0.99),
    "alike to a millionth": correlated(1 - 1e-6),
    "alike": correlated(1.0),
    "opposed": Condition(_opposed, 0.0),
    "heavy tails": _times(lambda random, n: (2 * draw(random, COUNT)).exp()),
    "layers of sizes": _times(lambda r, n: torch.where(torch.arange(COUNT) < 400, 1e3, 1.0)),
    "ranks of sizes": _times(lambda random, n: 10.0 ** -(torch.arange(n) % 3)[:, None]),
    "always the same": Condition(_constant),
    "a rank without gradients": Condition(_one_is_gone),
    "zeros": _times(lambda random, n: 0.0),
}
"""Gradients that the causes are tried on."""
