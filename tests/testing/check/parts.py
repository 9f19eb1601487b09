"""Parts of invented hooks: what a rank has, codecs, and what changes a hook.

A hook is a generator of one rank: it is given its own gradients, yields ``("sum", tensor)``,
``("max", tensor)``, ``("gather", tensor)`` or ``("pass", tensor)``, gets what a collective of that
kind gives (``pass``: the tensor of the rank before), and returns the bucket's result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad

Rounds = Generator[tuple[str, torch.Tensor], torch.Tensor, torch.Tensor]


@dataclass
class Rank:
    """One rank and one bucket.  ``kept``: its state; ``step``: how often it was called before."""

    rank: int
    size: int
    bucket: int = 0
    step: int = 0
    kept: dict[str, torch.Tensor] = field(default_factory=dict)

    def draw(self, *, shared: bool = False) -> torch.Generator:
        """Return random numbers for this step: the same on all ranks, or the rank's own."""
        own = 0 if shared else 1 + self.rank
        return torch.Generator().manual_seed(own + 100 * self.bucket + 10_000 * self.step)

    def recall(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """Return what was kept under a name, or zeros."""
        kept = self.kept.get(name)
        return kept if kept is not None and kept.shape == like.shape else torch.zeros_like(like)

    def residual(self, g: torch.Tensor, times: float = 1.0) -> torch.Tensor:
        """Return gradients with what was left out before, ``times`` times."""
        return g + times * self.recall("left", g)


Hook = Callable[[Rank, torch.Tensor], Rounds]
Change = Callable[[Rank, torch.Tensor], torch.Tensor]


def mean(me: Rank, g: torch.Tensor) -> Rounds:
    """Average in float32."""
    return (yield "sum", g / me.size)


# Numbers.


def scale_of(g: torch.Tensor, levels: float = 127) -> torch.Tensor:
    return (g.abs().max() / levels).clamp(min=1e-30)


def rounded(me: Rank, x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-127, 127)


def drawn(me: Rank, x: torch.Tensor) -> torch.Tensor:
    """Round by chance."""
    return (x + torch.rand(x.shape, generator=me.draw())).floor().clamp(-127, 127)


def truncated(me: Rank, x: torch.Tensor, bits: int = 20) -> torch.Tensor:
    """Cut off the last bits of float32."""
    return (x.view(torch.int32) & -(1 << bits)).view(torch.float32)


def int8_both_ways(g: torch.Tensor) -> torch.Tensor:
    return (g / scale_of(g)).round() * scale_of(g)


def signs(x: torch.Tensor) -> torch.Tensor:
    return x.sign() * x.abs().mean()


def clipped(g: torch.Tensor, norm: float) -> torch.Tensor:
    return g * min(1.0, norm / (g.norm().item() + 1e-6))


def noise(me: Rank, g: torch.Tensor, *, shared: bool = True) -> torch.Tensor:
    return torch.randn(g.shape, generator=me.draw(shared=shared))


def as_bytes(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1).view(torch.uint8) for part in parts])


# Hooks that send all elements.


def dense(lossy: Callable[[torch.Tensor], torch.Tensor], keeps: float = 0.0) -> Hook:
    """Send what is left of gradients as float32; ``keeps``: feed the rest back so many times."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        x = me.residual(g, keeps)
        me.kept["left"] = x - lossy(x)
        return (yield from mean(me, lossy(x)))

    return hook


def summed_as(dtype: torch.dtype) -> Hook:
    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        return (yield "sum", (g / me.size).to(dtype)).float()

    return hook


def gathered_as(dtype: torch.dtype, keeps: float = 0.0) -> Hook:
    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        x = me.residual(g, keeps)
        me.kept["left"] = x - x.to(dtype).float()
        return (yield "gather", x.to(dtype)).float().sum(0) / me.size

    return hook


def scaled(
    levels: Change = rounded,
    dtype: torch.dtype = torch.int8,
    top: float = 127,
    *,
    reach: Callable[[torch.Tensor], torch.Tensor] = scale_of,
    keeps: float = 0.0,
    shift: int = 0,
) -> Hook:
    """Send a byte for each element and a scale; ``top``: how many of it reach the largest."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        x = me.residual(g, keeps)
        unit = (reach(x) * (127 if reach is scale_of else 1) / top).clamp(min=1e-30)
        sent = levels(me, x / unit).to(dtype)
        me.kept["left"] = x - sent.float() * unit
        rows = yield "gather", as_bytes(sent, unit)
        parts = [(r[:-4].view(dtype).float() + shift) * scale_in(r) for r in rows]
        return torch.stack(parts).sum(0) / me.size

    return hook


def scale_in(row: torch.Tensor) -> torch.Tensor:
    return row[-4:].clone().view(torch.float32)


def affine(levels: int) -> Hook:
    """Send levels from the least to the largest, by chance, a byte each."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        low, unit = g.min(), ((g.max() - g.min()) / levels).clamp(min=1e-30)
        sent = ((g - low) / unit + torch.rand(g.shape, generator=me.draw())).floor()
        rows = yield "gather", as_bytes(sent.clamp(0, levels).to(torch.uint8), low, unit)
        both = [(row[:-8].float(), *row[-8:].clone().view(torch.float32)) for row in rows]
        return torch.stack([found * step + start for found, start, step in both]).sum(0) / me.size

    return hook


def packed(me: Rank, values: torch.Tensor, base: int, scale: torch.Tensor) -> Rounds:
    """Send digits below ``base``, as many to a byte as fit, and a scale; returns rows of digits."""
    fit = {2: 8, 4: 4, 16: 2}[base]
    powers = base ** torch.arange(fit, dtype=torch.uint8)
    digits = pad(values.to(torch.uint8), (0, -len(values) % fit)).view(-1, fit)
    rows = yield "gather", as_bytes((digits * powers).sum(1, dtype=torch.uint8), scale)
    found = [(r[:-4, None] // powers % base).flatten()[: len(values)].float() for r in rows]
    return torch.stack([torch.cat([d, scale_in(r)]) for d, r in zip(found, rows, strict=True)])


def sign_bits(me: Rank, x: torch.Tensor) -> Rounds:
    rows = yield from packed(me, x >= 0, 2, x.abs().mean())
    return ((rows[:, :-1] * 2 - 1) * rows[:, -1:]).sum(0) / me.size


def low_rank(rank: int = 2, *, keeps: bool = False, times: bool = False) -> Hook:
    """PowerSGD of the first 48 x 48 elements, the rest as it is; ``times``: a sum of all ranks."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        side, x = 48, me.residual(g, float(keeps))
        if len(x) < side * side:
            return (yield from mean(me, x))
        matrix, rest = x[: side * side].view(side, side), x[side * side :]
        q = torch.linalg.qr(torch.randn(side, rank, generator=me.draw(shared=True)))[0]
        p = yield "sum", torch.cat([(matrix @ q).flatten(), rest]) / me.size
        basis = torch.linalg.qr(p[: side * rank].view(side, rank))[0]
        q = yield "sum", matrix.T @ basis / me.size
        result = torch.cat([(basis @ q.T).flatten(), p[side * rank :]])
        result = result * me.size if times else result
        me.kept["left"] = x - result
        return result

    return hook


def ring(me: Rank, g: torch.Tensor) -> Rounds:
    """Add what goes from rank to rank, in an order that is the same on all."""
    passed, rows = g, {me.rank: g}
    for i in range(1, me.size):
        passed = yield "pass", passed
        rows[(me.rank - i) % me.size] = passed
    return torch.stack([rows[rank].float() for rank in range(me.size)]).sum(0) / me.size


# Hooks that send some elements.

Join = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def largest(g: torch.Tensor, share: float = 0.05) -> torch.Tensor:
    return g.abs().topk(max(1, int(share * g.numel()))).indices


def top(share: float = 0.05) -> Change:
    return lambda me, x: largest(x, share)


def some(share: float, *, shared: bool = True) -> Change:
    """Choose places by chance."""

    def places(me: Rank, x: torch.Tensor) -> torch.Tensor:
        return torch.randperm(len(x), generator=me.draw(shared=shared))[
            : max(1, int(share * len(x)))
        ]

    return places


def of_each_block(me: Rank, x: torch.Tensor) -> torch.Tensor:
    blocks = pad(x.abs(), (0, -len(x) % 16)).view(-1, 16)
    return torch.arange(len(blocks)) * 16 + blocks.argmax(1)


def add(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    total.index_add_(0, places, values)


def put(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Put a value over the one that another rank has sent."""
    total[places] = values


def sparse(
    places: Change,
    keeps: float = 0.0,
    *,
    values: Change = lambda me, x: x,
    join: Join = add,
    left: Callable[[Rank, torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
) -> Hook:
    """Send elements at each rank's places; ``left``: what is kept of the others, if not all."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        x = me.residual(g, keeps)
        chosen = places(me, x)
        me.kept["left"] = left(me, x, chosen) if left else x.index_fill(0, chosen, 0.0)
        where = yield "gather", chosen
        sent = yield "gather", values(me, x)[chosen]
        total = torch.zeros_like(g)
        for place, value in zip(where, sent, strict=True):
            join(total, place, value)
        return total / me.size

    return hook


def shared(places: Change, keeps: float = 0.0, dtype: torch.dtype = torch.float32) -> Hook:
    """Send elements at places that are the same on all ranks."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        x = me.residual(g, keeps)
        chosen = places(me, x)
        sent = x[chosen].to(dtype)
        me.kept["left"] = x.index_copy(0, chosen, x[chosen] - sent.float())
        rows = yield "gather", sent
        return torch.zeros_like(g).index_copy(0, chosen, rows.float().sum(0) / me.size)

    return hook


def by_chance(chance: Callable[[torch.Tensor], torch.Tensor]) -> Hook:
    """Send each element with a chance, over that chance."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        mask = torch.rand(g.shape, generator=me.draw()) < chance(g)
        count = yield "max", mask.sum()[None].float()
        padded = largest(mask.float(), (int(count) + 0.5) / len(g))
        return (yield from sparse(lambda me, x: padded)(me, g / chance(g) * mask))

    return hook


# What changes a hook.


def before(hook: Hook, change: Change) -> Hook:
    """Return a hook whose gradients are changed first."""
    return lambda me, g: hook(me, change(me, g))


def after(hook: Hook, change: Change) -> Hook:
    """Return a hook whose result is changed."""

    def changed(me: Rank, g: torch.Tensor) -> Rounds:
        return change(me, (yield from hook(me, g)))

    return changed


def times(hook: Hook, factor: float) -> Hook:
    return after(hook, lambda me, result: factor * result)


def summed(hook: Hook) -> Hook:
    return after(hook, lambda me, result: me.size * result)


def unequal(hook: Hook, off: float) -> Hook:
    """Return a hook in which ranks weigh more and less by so much."""
    return before(hook, lambda me, g: g * (1 + (off if me.rank % 2 == 0 else -off)))


def late(hook: Hook) -> Hook:
    """Return a hook that gives the result of the step before."""

    def old(me: Rank, result: torch.Tensor) -> torch.Tensor:
        before = me.kept.get("result", result)
        me.kept["result"] = result.clone()
        return before if before.shape == result.shape else result

    return after(hook, old)


def with_noise(hook: Hook, size: float) -> Hook:
    return after(hook, lambda me, result: result + size * result.std() * noise(me, result))


def in_parts(hook: Hook, cut: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> Hook:
    """Return a hook that is called for pieces of each bucket."""

    def pieces(me: Rank, g: torch.Tensor) -> Rounds:
        parts = []
        for part in cut(g):
            parts.append((yield from hook(me, part)))
        return torch.cat(parts)

    return pieces
