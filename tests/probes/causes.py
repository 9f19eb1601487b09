"""What hooks may do to gradients, simulated on all ranks, and what each may be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sin
from typing import NamedTuple

import torch
from torch.nn.functional import normalize

COUNT = 512


def drawn(random: torch.Generator, *shape: int) -> torch.Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=random, dtype=torch.float64)


@dataclass
class Hook:
    """What a simulated hook has: random numbers, and memory between steps."""

    dtype: torch.dtype
    random: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(1))
    memory: dict[str, torch.Tensor] = field(default_factory=dict)

    def fed_back(
        self, given: torch.Tensor, lossy: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """Return what ``lossy`` makes of a tensor and of what it has left out so far."""
        wanted = given + self.memory.get("left", torch.zeros_like(given))
        sent = lossy(wanted)
        self.memory["left"] = wanted - sent
        return sent

    def before(self, now: torch.Tensor, momentum: float = 0.0) -> torch.Tensor:
        """Return what a tensor was at the step before, or all before with a momentum."""
        before = self.memory.get("before", now)
        self.memory["before"] = momentum * before + now
        return self.memory["before"] if momentum else before


Function = Callable[[torch.Tensor, Hook], torch.Tensor]
"""From gradients (ranks, count) to the result of all ranks, (count,), or of each, (ranks, count);
float64, with values of the dtype."""


def mean(g: torch.Tensor, h: Hook) -> torch.Tensor:
    """Divide, then add up in the dtype, as gloo does."""
    return total(g / len(g), h)


def total(g: torch.Tensor, h: Hook) -> torch.Tensor:
    added = torch.zeros(g.shape[1], dtype=h.dtype)
    for own in g:
        added = added + own.to(h.dtype)
    return added.double()


def quantised(x: torch.Tensor) -> torch.Tensor:
    """Round to 256 levels between the smallest and the largest value."""
    step = (x.max() - x.min()) / 255
    return (x / step).round() * step if step else x


def largest(x: torch.Tensor) -> torch.Tensor:
    """Keep the tenth of elements with the largest magnitudes."""
    kept = x.abs().topk(max(1, x.numel() // 10)).indices
    return torch.zeros_like(x).index_copy(0, kept, x[kept])


def rows(function: Callable[[torch.Tensor], torch.Tensor], g: torch.Tensor) -> torch.Tensor:
    """Apply a function to each rank's gradients."""
    return torch.stack([function(own) for own in g])


def clip(x: torch.Tensor, longest: float) -> torch.Tensor:
    """Scale as ``clip_grad_norm_`` does; ``longest`` is of a gradient with elements of size 1."""
    size = float(x.norm()) / x.numel() ** 0.5
    return x * min(1.0, longest / size) if size else x


def half_local(g: torch.Tensor, h: Hook) -> torch.Tensor:
    """Average the last fifth only."""
    result, first = mean(g, h).expand_as(g).clone(), int(0.8 * g.shape[1])
    result[:, :first] = g[:, :first]
    return result


class Cause(NamedTuple):
    """``name``: what it may be called; "" of hooks that are right or wrong in no known way.

    ``found``: it is named where ranks' gradients differ and nothing is rounded to 16 bits.
    """

    function: Function
    name: str = ""
    found: bool = True


RIGHT: dict[str, Function] = {
    "average": mean,
    "clip by norm": lambda g, h: clip(mean(g, h), 0.3),
    "clip each rank": lambda g, h: rows(lambda x: clip(x, 0.5), g).mean(0),
    "normalise": lambda g, h: normalize(mean(g, h), dim=0),
    "clamp at a tenth": lambda g, h: mean(g, h).clamp(-0.1, 0.1),
    "8 bits each rank": lambda g, h: rows(quantised, g).mean(0),
    "8 bits, fed back": lambda g, h: h.fed_back(mean(g, h), quantised),
    "1 bit": lambda g, h: mean(g, h).sign() * mean(g, h).abs().mean(),
    "float16": lambda g, h: (g / len(g)).half().double().sum(0),
    "largest tenth": lambda g, h: largest(mean(g, h)),
    "largest of each rank": lambda g, h: rows(largest, g).mean(0),
    "noise of 1 %": lambda g, h: mean(g, h) * (1 + 0.01 * drawn(h.random, COUNT)),
    "a step late": lambda g, h: h.before(mean(g, h)),
    "momentum": lambda g, h: h.before(mean(g, h), 0.9),
    "zeros": lambda g, h: torch.zeros(COUNT),
    "a tenth averaged": lambda g, h: 0.9 * g + 0.1 * mean(g, h),
    "one layer averaged": half_local,
    "over those that are there": lambda g, h: g.sum(0) / max(1, int(g.any(1).sum())),
    "own noise": lambda g, h: mean(g, h) + 0.1 * g.abs().mean() * drawn(h.random, *g.shape),
    "sum of each second element": lambda g, h: total(g, h) * (torch.arange(COUNT) % 2),
    "loss scale of 3": lambda g, h: mean(g, h) / 3,
    "a third, 8 bits": lambda g, h: quantised(mean(g, h)) / 3,
}
"""Right, lossy, local by design, or wrong in a way that has no name."""

CAUSES: dict[str, Cause] = {
    **{name: Cause(function, found=False) for name, function in RIGHT.items()},
    "sum": Cause(total, "not_averaged"),
    "sum, 8 bits": Cause(lambda g, h: quantised(total(g, h)), "not_averaged"),
    "divided twice": Cause(lambda g, h: mean(g, h) / len(g), "averaged_twice"),
    "minus": Cause(lambda g, h: -mean(g, h), "wrong_sign"),
    "minus, 8 bits": Cause(lambda g, h: quantised(-mean(g, h)), "wrong_sign"),
    "minus the sum": Cause(lambda g, h: -total(g, h), "wrong_sign"),
    "own": Cause(lambda g, h: g, "not_communicated"),
    "own, divided": Cause(lambda g, h: g / len(g), "not_communicated"),
    "own, clipped": Cause(lambda g, h: rows(lambda x: clip(x, 0.3), g), "not_communicated"),
    "own, a step late": Cause(lambda g, h: h.before(g), "not_communicated", found=False),
    "own, 8 bits": Cause(lambda g, h: rows(quantised, g), "not_communicated", found=False),
    "rank 0's": Cause(lambda g, h: g[0], "ranks_missing"),
    "without the last": Cause(lambda g, h: g[:-1].mean(0), "ranks_missing"),
    "half of the ranks": Cause(lambda g, h: g[: len(g) // 2].mean(0), "ranks_missing"),
    "half of them, 8 bits": Cause(
        lambda g, h: quantised(g[: len(g) // 2].mean(0)), "ranks_missing", found=False
    ),
}
"""Everything that is simulated."""


class Condition(NamedTuple):
    """Gradients of one step: correlated standard normal numbers, times a factor of each.

    ``alike``: how the ranks' gradients correlate.  ``clear``: causes that are ``found`` are named.
    """

    alike: float = 0.5
    factor: Callable[[torch.Generator, int], torch.Tensor | float] = lambda random, size: 1.0
    clear: bool = False
    is_constant: bool = False

    def make(self, random: torch.Generator, size: int, step: int) -> torch.Tensor:
        """Return what ``size`` ranks have, (ranks, count); its size differs by step."""
        if self.is_constant:
            random, step = torch.Generator().manual_seed(size), 0
        common, own = drawn(random, COUNT), drawn(random, size, COUNT)
        made = self.alike**0.5 * common + (1 - self.alike) ** 0.5 * own
        return made * (1 + 0.3 * sin(step + 1)) * self.factor(random, size)


CONDITIONS: dict[str, Condition] = {
    "unlike": Condition(0.0, clear=True),
    "half alike": Condition(clear=True),
    "nearly alike": Condition(0.99),
    "alike to a millionth": Condition(1 - 1e-6),
    "alike": Condition(1.0),
    "heavy tails": Condition(factor=lambda random, size: (2 * drawn(random, COUNT)).exp()),
    "layers of sizes": Condition(
        factor=lambda r, n: torch.where(torch.arange(COUNT) < 400, 1e3, 1.0)
    ),
    "ranks of sizes": Condition(factor=lambda r, n: 10.0 ** -(torch.arange(n) % 3)[:, None]),
    "a rank without gradients": Condition(
        factor=lambda r, n: (torch.arange(n) < n - 1).double()[:, None]
    ),
    "always the same": Condition(is_constant=True),
    "zeros": Condition(factor=lambda random, size: 0.0),
}
"""Gradients that the causes are tried on."""
