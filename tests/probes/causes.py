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


def truncated(x: torch.Tensor) -> torch.Tensor:
    """Cut float32 to the upper 16 bits, towards zero."""
    return (x.float().view(torch.int32) & -65536).view(torch.float32).double()


def scatter(x: torch.Tensor, h: Hook, share: float) -> torch.Tensor:
    """Send random elements, times the inverse of the share: right on average."""
    kept = torch.rand(x.numel(), generator=h.random) < share
    return x * kept / share


def every_second(g: Gradients, h: Hook) -> torch.Tensor:
    """Keep every second step's average, and send both at the next one."""
    return h.fed_back(mean(g, h), lambda x: x if h.step % 2 else torch.zeros_like(x))


def momentum(g: Gradients, h: Hook) -> torch.Tensor:
    """Add nine tenths of what was before."""
    h.memory["sum"] = 0.9 * h.memory.get("sum", torch.zeros(g.shape[1])) + mean(g, h)
    return h.memory["sum"]


def adasum(g: Gradients, h: Hook) -> torch.Tensor:
    """Add what two gradients do not share, and average what they do (Maleki et al. 2020)."""
    a, b = g[: len(g) // 2].mean(0), g[len(g) // 2 :].mean(0)
    dot = a @ b
    return (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b


def per_layer(x: torch.Tensor, factor: Callable[[torch.Tensor], float]) -> torch.Tensor:
    """Scale each of four layers by its own factor."""
    return torch.cat([part * factor(part) for part in x.chunk(4)])


def half_local(g: Gradients, h: Hook) -> torch.Tensor:
    """Average the last fifth only."""
    result, first = mean(g, h).expand_as(g).clone(), int(0.8 * g.shape[1])
    result[:, :first] = g[:, :first]
    return result


def spoilt(x: torch.Tensor, value: float) -> torch.Tensor:
    """Put a value into the first element."""
    return torch.cat([torch.full((1,), value, dtype=x.dtype), x[1:]])


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


def factor_of(factor: Callable[[int], float]) -> Callable[[int], set[str]]:
    """Return the names of a multiple of the average."""

    def names(size: int) -> set[str]:
        value = factor(size)
        if value == size:
            return {"not_averaged"}
        return {"averaged_twice"} if value == 1 / size else {"wrong_scale"}

    return names


def scaled(factor: Callable[[int], float]) -> Cause:
    """Return the cause of a factor that is the same at each step."""
    return Cause(lambda g, h: mean(g, h) * factor(len(g)), factor_of(factor), found=True)


def named(name: str, function: Function, *, found: bool = True) -> Cause:
    """Return a cause with one name for any number of ranks."""
    return Cause(function, lambda n: {name}, found)


def _gone(g: Gradients, h: Hook) -> torch.Tensor:
    """Average over the ranks that have any gradients, as under ``join``."""
    return g.sum(0) / max(1, int(g.any(1).sum()))


RIGHT: dict[str, Function] = {
    "average": mean,
    "divided after": lambda g, h: total(g, h) / len(g),
    "in float64": lambda g, h: g.mean(0),
    "clip by norm": lambda g, h: clip_norm(mean(g, h), mean(g, h).norm(), 0.3),
    "clip sometimes": lambda g, h: clip_norm(mean(g, h), mean(g, h).norm(), 0.75),
    "clip by the last norm": lambda g, h: clip_norm(
        mean(g, h), h.before("m", mean(g, h)).norm(), 0.3
    ),
    "clip each rank": lambda g, h: rows(lambda x: clip_norm(x, x.norm(), 0.5), g).mean(0),
    "clip and 8 bits": lambda g, h: quantised(clip_norm(mean(g, h), mean(g, h).norm(), 0.3)),
    "normalise": lambda g, h: torch.nn.functional.normalize(mean(g, h), dim=0),
    "normalise layers": lambda g, h: per_layer(
        mean(g, h), lambda x: 1 / float(x.norm()) if x.any() else 1.0
    ),
    "clamp at a tenth": lambda g, h: mean(g, h).clamp(-0.1, 0.1),
    "clamp at 1": lambda g, h: mean(g, h).clamp(-1, 1),
    "clamp at 3": lambda g, h: mean(g, h).clamp(-3, 3),
    "clamp at a thousandth": lambda g, h: mean(g, h).clamp(-1e-3, 1e-3),
    "clamp each rank": lambda g, h: g.clamp(-1, 1).mean(0),
    "8 bits": lambda g, h: quantised(mean(g, h)),
    "8 bits each rank": lambda g, h: rows(quantised, g).mean(0),
    "8 bits, fed back": lambda g, h: h.fed_back(mean(g, h), quantised),
    "8 bits, zero point off": lambda g, h: quantised(mean(g, h), shift=3),
    "4 bits": lambda g, h: quantised(mean(g, h), 4),
    "1 bit": lambda g, h: of_sign(mean(g, h)),
    "majority of signs": lambda g, h: g.sign().sum(0).sign(),
    "float16": lambda g, h: rows(lambda x: (x / len(g)).half().double(), g).sum(0),
    "bfloat16": lambda g, h: rows(lambda x: (x / len(g)).bfloat16().double(), g).sum(0),
    "cut to 16 bits": lambda g, h: truncated(mean(g, h)),
    "largest tenth": lambda g, h: largest(mean(g, h), 0.1),
    "largest half": lambda g, h: largest(mean(g, h), 0.5),
    "largest of each rank": lambda g, h: rows(lambda x: largest(x, 0.1), g).mean(0),
    "largest, fed back": lambda g, h: h.fed_back(mean(g, h), lambda x: largest(x, 0.1)),
    "random half": lambda g, h: scatter(mean(g, h), h, 0.5),
    "rank 1": lambda g, h: low_rank(mean(g, h), 1),
    "rank 4": lambda g, h: low_rank(mean(g, h), 4),
    "rank 4, fed back": lambda g, h: h.fed_back(mean(g, h), lambda x: low_rank(x, 4)),
    "noise of 1 %": lambda g, h: mean(g, h) * (1 + 0.01 * h.normal(g.shape[1])),
    "noise of 30 %": lambda g, h: mean(g, h) * (1 + 0.3 * h.normal(g.shape[1])),
    "a step late": lambda g, h: h.before("m", mean(g, h)),
    "momentum": momentum,
    "every second step": every_second,
    "another bucket's": lambda g, h: h.normal(g.shape[1]),
    "moved by one": lambda g, h: mean(g, h).roll(1),
    "backwards": lambda g, h: mean(g, h).flip(0),
    "zeros": lambda g, h: torch.zeros(g.shape[1]),
    "NaN": lambda g, h: spoilt(mean(g, h), math.nan),
    "inf": lambda g, h: spoilt(mean(g, h), math.inf),
    "the end dropped": lambda g, h: torch.cat([mean(g, h)[:-9], torch.zeros(9)]),
    "maximum": lambda g, h: g.amax(0),
    "median": lambda g, h: g.median(0).values,
    "product": lambda g, h: g.prod(0),
    "weights 1.2 and 0.8": lambda g, h: weighted(g, 1 + 0.2 * (-1.0) ** torch.arange(len(g))),
    "weights of the batch": lambda g, h: weighted(g, 0.5 + torch.rand(len(g), generator=h.random)),
    "half of it own": lambda g, h: (g + mean(g, h)) / 2,
    "a tenth averaged": lambda g, h: 0.9 * g + 0.1 * mean(g, h),
    "one layer averaged": half_local,
    "over those that are there": _gone,
    "adasum": adasum,
    "own noise": lambda g, h: mean(g, h) + 0.1 * g.abs().mean() * h.normal(*g.shape),
    "ring of neighbours, mixed": lambda g, h: 0.5 * neighbours(g, h) + 0.5 * mean(g, h),
}
"""Right, lossy, local by design, or wrong in a way that has no name."""

CAUSES: dict[str, Cause] = {
    **{name: Cause(function) for name, function in RIGHT.items()},
    "sum": Cause(total, lambda n: {"not_averaged"}, found=True),
    "sum, 8 bits": named("not_averaged", lambda g, h: quantised(total(g, h))),
    "sum, bfloat16": named("not_averaged", lambda g, h: g.sum(0).bfloat16().double()),
    "sum, noise of 1 %": named(
        "not_averaged", lambda g, h: total(g, h) * (1 + 0.01 * h.normal(g.shape[1]))
    ),
    "sum, fed back": named("not_averaged", lambda g, h: h.fed_back(total(g, h), quantised)),
    "sum of each second element": Cause(lambda g, h: total(g, h) * (torch.arange(g.shape[1]) % 2)),
    "divided twice": scaled(lambda n: 1 / n),
    "loss scale of 64": scaled(lambda n: 1 / 64),
    "loss scale of 65536": scaled(lambda n: 1 / 65536),
    "twice": scaled(lambda n: 2.0),
    "half more": scaled(lambda n: 1.5),
    "some ranks too many": scaled(lambda n: n / (n + 3)),
    "a millionfold": scaled(lambda n: 1e6),
    "a third, 8 bits": named("wrong_scale", lambda g, h: quantised(mean(g, h)) / 3),
    "minus": named("wrong_sign", lambda g, h: -mean(g, h)),
    "minus, 8 bits": named("wrong_sign", lambda g, h: quantised(-mean(g, h))),
    "minus, clipped": named(
        "wrong_sign", lambda g, h: -clip_norm(mean(g, h), mean(g, h).norm(), 0.3)
    ),
    "minus the sum": named("wrong_sign", lambda g, h: -total(g, h)),
    "own": named("not_communicated", lambda g, h: g),
    "own, divided": named("not_communicated", lambda g, h: g / len(g)),
    "own, twice": named("not_communicated", lambda g, h: 2 * g),
    "own, clipped": named(
        "not_communicated", lambda g, h: rows(lambda x: clip_norm(x, x.norm(), 0.3), g)
    ),
    "own, a step late": named("not_communicated", lambda g, h: h.before("g", g), found=False),
    "own, but for 1 %": named(
        "not_communicated", lambda g, h: 0.99 * g + 0.01 * mean(g, h), found=False
    ),
    "own, 8 bits": named("not_communicated", lambda g, h: rows(quantised, g), found=False),
    "own, float16": named("not_communicated", lambda g, h: g.half().double(), found=False),
    "rank 0's": named("ranks_missing", lambda g, h: g[0]),
    "rank 0's, divided": named("ranks_missing", lambda g, h: g[0] / len(g)),
    "without the last": named("ranks_missing", lambda g, h: g[:-1].mean(0)),
    "without the last, by all": named("ranks_missing", lambda g, h: g[:-1].sum(0) / len(g)),
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


def _drifting(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    return _constant(random, size, step) * 0.999**step + 1e-3 * draw(random, size, COUNT)


def _opposed(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    own = draw(random, size, COUNT)
    return own - 0.9 * own.mean(0)


def _one_is_gone(random: torch.Generator, size: int, step: int) -> torch.Tensor:
    made = correlated(0.5).make(random, size, step)
    made[-1] = 0
    return made


def _spikes(random: torch.Generator, size: int) -> torch.Tensor:
    return torch.where(torch.arange(COUNT) % 97 == 5, 1e4, 1.0)


CONDITIONS: dict[str, Condition] = {
    "unlike": correlated(0.0),
    "half alike": correlated(0.5),
    "nearly alike": correlated(0.99),
    "alike to a millionth": correlated(1 - 1e-6),
    "alike": correlated(1.0),
    "opposed": Condition(_opposed, 0.0),
    "heavy tails": _times(lambda random, n: (2 * draw(random, COUNT)).exp()),
    "spikes": _times(_spikes),
    "layers of sizes": _times(lambda r, n: torch.where(torch.arange(COUNT) < 400, 1e3, 1.0)),
    "sparse": _times(lambda random, n: torch.rand(COUNT, generator=random) < 0.1),
    "ranks of sizes": _times(lambda random, n: 10.0 ** -(torch.arange(n) % 3)[:, None]),
    "tiny": _times(lambda random, n: 1e-6),
    "huge": _times(lambda random, n: 1e4),
    "always the same": Condition(_constant),
    "drifting": Condition(_drifting),
    "a rank without gradients": Condition(_one_is_gone),
    "zeros": _times(lambda random, n: 0.0),
}
"""Gradients that the causes are tried on."""
