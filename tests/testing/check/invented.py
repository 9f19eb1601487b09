"""Hooks that average, and hooks that nearly do: the collection that ``hooktrace check`` is held to.

A hook is a generator of one rank: it is given its own gradients, yields ``("sum", tensor)``,
``("max", tensor)`` or ``("gather", tensor)``, gets what a collective of that kind gives, and
returns the bucket's result.  ``simulate.py`` runs all ranks of one in this process, and
``tests/distributed/check_hooks.py`` makes DDP hooks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import torch

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

    def residual(self, g: torch.Tensor, times: float = 1.0) -> torch.Tensor:
        """Return gradients with what was left out before, ``times`` times."""
        left = self.kept.get("left")
        return g + times * left if left is not None and left.shape == g.shape else g.clone()


Hook = Callable[[Rank, torch.Tensor], Rounds]
RIGHT: dict[str, Hook] = {}
WRONG: dict[str, Hook] = {}


def right(hook: Hook) -> Hook:
    RIGHT[hook.__name__] = hook
    return hook


def wrong(hook: Hook) -> Hook:
    WRONG[hook.__name__] = hook
    return hook


def mean(me: Rank, g: torch.Tensor) -> Rounds:
    """Average in float32."""
    return (yield "sum", g / me.size)


# What compresses one tensor.


def scale_of(g: torch.Tensor, levels: int = 127) -> torch.Tensor:
    return (g.abs().max() / levels).clamp(min=1e-30)


def to_int8(g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = scale_of(g)
    return (g / scale).round().clamp(-127, 127).to(torch.int8), scale


def int8_both_ways(g: torch.Tensor) -> torch.Tensor:
    levels, scale = to_int8(g)
    return levels * scale


def keep_largest(g: torch.Tensor, share: float) -> torch.Tensor:
    places = g.abs().topk(max(1, int(share * g.numel()))).indices
    return torch.zeros_like(g).index_copy(0, places, g[places])


def signs(g: torch.Tensor) -> torch.Tensor:
    return g.sign() * g.abs().mean()


def as_bytes(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1).view(torch.uint8) for part in parts])


def gathered_int8(me: Rank, g: torch.Tensor, shift: int = 0) -> Rounds:
    """Send bytes and a scale, and return the mean of what they mean."""
    levels, scale = to_int8(g)
    rows = yield "gather", as_bytes(levels, scale)
    total = torch.zeros_like(g)
    for row in rows:
        total += (row[:-4].view(torch.int8).float() + shift) * row[-4:].clone().view(torch.float32)
    return total / me.size


def gathered_sparse(me: Rank, g: torch.Tensor, places: torch.Tensor, divide: bool = True) -> Rounds:
    """Send some elements with their places."""
    where = yield "gather", places
    values = yield "gather", g[places]
    total = torch.zeros_like(g)
    for place, value in zip(where, values, strict=True):
        total.index_add_(0, place, value)
    return total / me.size if divide else total


def largest(g: torch.Tensor, share: float = 0.05) -> torch.Tensor:
    return g.abs().topk(max(1, int(share * g.numel()))).indices


# Right ones.


@right
def plain(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g))


@right
def adds_gathered(me: Rank, g: torch.Tensor) -> Rounds:
    rows = yield "gather", g
    return rows.flip(0).sum(0) / me.size


@right
def half(me: Rank, g: torch.Tensor) -> Rounds:
    total = yield "sum", (g / me.size).half()
    return total.float()


@right
def bfloat_truncated(me: Rank, g: torch.Tensor) -> Rounds:
    cut = (g.view(torch.int32) & -65536).view(torch.float32)
    total = yield "sum", (cut / me.size).bfloat16()
    return total.float()


@right
def half_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = x.half()
    me.kept["left"] = x - sent.float()
    rows = yield "gather", sent
    return rows.float().sum(0) / me.size


@right
def float32_then_half(me: Rank, g: torch.Tensor) -> Rounds:
    total = yield "sum", g / me.size
    part = total.tensor_split(me.size)[me.rank].half()
    longest = -(-g.numel() // me.size)
    rows = yield "gather", torch.nn.functional.pad(part, (0, longest - len(part)))
    lengths = [len(each) for each in total.tensor_split(me.size)]
    return torch.cat([row[:n] for row, n in zip(rows, lengths, strict=True)]).float()


@right
def int8(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_int8(me, g))


@right
def int8_with_room(me: Rank, g: torch.Tensor) -> Rounds:
    """All-reduce bytes under one scale, with room for the sum."""
    top = yield "max", g.abs().max()[None]
    scale = (top / (127 // me.size)).clamp(min=1e-30)
    total = yield "sum", (g / scale).round().to(torch.int8)
    return total.float() * scale / me.size


@right
def int8_by_chance(me: Rank, g: torch.Tensor) -> Rounds:
    scale = scale_of(g)
    levels = (g / scale + torch.rand(g.shape, generator=me.draw())).floor().clamp(-127, 127)
    rows = yield "gather", as_bytes(levels.to(torch.int8), scale)
    parts = [r[:-4].view(torch.int8).float() * r[-4:].clone().view(torch.float32) for r in rows]
    return torch.stack(parts).sum(0) / me.size


@right
def int8_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    me.kept["left"] = x - int8_both_ways(x)
    return (yield from gathered_int8(me, x))


@right
def int8_with_feedback_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = int8_both_ways(x)
    me.kept["left"] = x - sent
    return (yield from mean(me, sent))


@right
def int8_of_differences(me: Rank, g: torch.Tensor) -> Rounds:
    """EF21: send how the gradients differ from what all know of them."""
    known = me.kept.get("known")
    mine = me.kept.get("mine")
    if known is None or mine is None or known.shape != g.shape:
        known = mine = torch.zeros_like(g)
    change = g - mine
    me.kept["mine"] = mine + int8_both_ways(change)
    known = known + (yield from gathered_int8(me, change))
    me.kept["known"] = known
    return known.clone()


def float8(me: Rank, g: torch.Tensor, dtype: torch.dtype) -> Rounds:
    scale = scale_of(g, 400)
    rows = yield "gather", as_bytes((g / scale).to(dtype), scale)
    parts = [r[:-4].view(dtype).float() * r[-4:].clone().view(torch.float32) for r in rows]
    return torch.stack(parts).sum(0) / me.size


@right
def float8_e5m2(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from float8(me, g, torch.float8_e5m2))


@right
def top(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_sparse(me, g, largest(g)))


@right
def top_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = largest(x)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@right
def top_hundredth_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = largest(x, 0.01)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@right
def top_with_feedback_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = keep_largest(x, 0.05)
    me.kept["left"] = x - sent
    return (yield from mean(me, sent))


def some(me: Rank, g: torch.Tensor, share: float) -> torch.Tensor:
    return torch.randperm(len(g), generator=me.draw(shared=True))[: max(1, int(share * len(g)))]


@right
def random_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = some(me, g, 0.1)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    total = yield "sum", x[places] / me.size
    return torch.zeros_like(g).index_copy(0, places, total)


@right
def random_and_scaled(me: Rank, g: torch.Tensor) -> Rounds:
    places = some(me, g, 0.1)
    total = yield "sum", g[places] / me.size * (len(g) / len(places))
    return torch.zeros_like(g).index_copy(0, places, total)


@right
def random_hundredth_and_scaled(me: Rank, g: torch.Tensor) -> Rounds:
    places = some(me, g, 0.01)
    total = yield "sum", g[places] / me.size * (len(g) / len(places))
    return torch.zeros_like(g).index_copy(0, places, total)


@right
def random_half(me: Rank, g: torch.Tensor) -> Rounds:
    places = some(me, g, 0.5)
    total = yield "sum", g[places] / me.size
    return torch.zeros_like(g).index_copy(0, places, total)


def packed(me: Rank, g: torch.Tensor, x: torch.Tensor) -> Rounds:
    bits = torch.nn.functional.pad(x >= 0, (0, -len(x) % 8)).view(-1, 8).to(torch.uint8)
    powers = 2 ** torch.arange(8, dtype=torch.uint8)
    rows = yield "gather", as_bytes((bits * powers).sum(1, dtype=torch.uint8), x.abs().mean())
    total = torch.zeros_like(g)
    for row in rows:
        flags = (row[:-4, None] & powers).ne(0).flatten()[: len(x)]
        total += (flags.float() * 2 - 1) * row[-4:].clone().view(torch.float32)
    return total / me.size


@right
def sign_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    me.kept["left"] = x - torch.where(x >= 0, 1.0, -1.0) * x.abs().mean()
    return (yield from packed(me, g, x))


@right
def sign_with_feedback_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = signs(x)
    me.kept["left"] = x - sent
    return (yield from mean(me, sent))


@right
def sign_with_feedback_as_bytes(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    me.kept["left"] = x - signs(x)
    rows = yield "gather", as_bytes(x.sign().to(torch.int8), x.abs().mean())
    parts = [r[:-4].view(torch.int8).float() * r[-4:].clone().view(torch.float32) for r in rows]
    return torch.stack(parts).sum(0) / me.size


@right
def sign(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from packed(me, g, g))


@right
def ternary(me: Rank, g: torch.Tensor) -> Rounds:
    """TernGrad: -1, 0 or 1 by chance, four to a byte."""
    scale = g.abs().max().clamp(min=1e-30)
    chosen = torch.rand(g.shape, generator=me.draw()) < g.abs() / scale
    levels = torch.nn.functional.pad((g.sign() * chosen + 1).to(torch.uint8), (0, -len(g) % 4))
    powers = 4 ** torch.arange(4, dtype=torch.uint8)
    sent = (levels.view(-1, 4) * powers).sum(1, dtype=torch.uint8)
    rows = yield "gather", as_bytes(sent, scale)
    total = torch.zeros_like(g)
    for row in rows:
        found = (row[:-4, None] // powers % 4).flatten()[: len(g)].float() - 1
        total += found * row[-4:].clone().view(torch.float32)
    return total / me.size


def low_rank(me: Rank, g: torch.Tensor, x: torch.Tensor, rank: int = 2) -> Rounds:
    """PowerSGD of the first 48 x 48 elements, the rest as it is."""
    side = 48
    if len(x) < side * side:
        return (yield from mean(me, x))
    matrix, rest = x[: side * side].view(side, side), x[side * side :]
    q = torch.linalg.qr(torch.randn(side, rank, generator=me.draw(shared=True)))[0]
    p = yield "sum", torch.cat([(matrix @ q).flatten(), rest]) / me.size
    rest = p[side * rank :]
    basis = torch.linalg.qr(p[: side * rank].view(side, rank))[0]
    q = yield "sum", matrix.T @ basis / me.size
    return torch.cat([(basis @ q.T).flatten(), rest])


@right
def low_rank_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    result = yield from low_rank(me, g, x)
    me.kept["left"] = x - result
    return result


@right
def low_rank_alone(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from low_rank(me, g, g))


def clipped(g: torch.Tensor, norm: float) -> torch.Tensor:
    return g * min(1.0, norm / (g.norm().item() + 1e-6))


@right
def clips_the_average(me: Rank, g: torch.Tensor) -> Rounds:
    return clipped((yield from mean(me, g)), 0.5)


@right
def clips_each_rank(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, clipped(g, 1.0)))


@right
def clips_values_above_1(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)).clamp(-1, 1)


@right
def clips_bfloats(me: Rank, g: torch.Tensor) -> Rounds:
    total = yield "sum", clipped(g, 1.0).bfloat16()
    return total.float() / me.size


@right
def clips_int8_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from int8_with_feedback(me, clipped(g, 1.0)))


@right
def every_fourth_step(me: Rank, g: torch.Tensor) -> Rounds:
    """Collect gradients, and send their sum now and then."""
    x = me.residual(g)
    me.kept["left"] = x
    if me.step % 4 != 3:
        return torch.zeros_like(g)
    me.kept["left"] = torch.zeros_like(x)
    return (yield from mean(me, x))


@right
def plain_at_first(me: Rank, g: torch.Tensor) -> Rounds:
    if me.step < 8:
        return (yield from mean(me, g))
    return (yield from top_with_feedback(me, g))


@right
def int8_of_large_buckets(me: Rank, g: torch.Tensor) -> Rounds:
    if me.bucket % 2:
        return (yield from mean(me, g))
    return (yield from gathered_int8(me, g))


@right
def int8_by_rows(me: Rank, g: torch.Tensor) -> Rounds:
    parts = []
    for part in g.split(512):
        parts.append((yield from gathered_int8(me, part)))
    return torch.cat(parts)


# Wrong ones: those of float32 first.


def weight(me: Rank, off: float = 0.2) -> float:
    return 1 + off if me.rank % 2 == 0 else 1 - off


def unequal(hook: Hook, off: float) -> Hook:
    """Return a hook in which ranks weigh more and less by so much."""
    return lambda me, g: hook(me, g * weight(me, off))


def times(hook: Hook, factor: float) -> Hook:
    """Return a hook whose result is too large by a factor."""

    def scaled(me: Rank, g: torch.Tensor) -> Rounds:
        return factor * (yield from hook(me, g))

    return scaled


def late(hook: Hook) -> Hook:
    """Return a hook that gives the result of the step before."""

    def before(me: Rank, g: torch.Tensor) -> Rounds:
        result = yield from hook(me, g)
        old = me.kept.get("result", result)
        me.kept["result"] = result.clone()
        return old if old.shape == result.shape else result

    return before


@wrong
def maximum(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield "max", g)


@wrong
def minimum(me: Rank, g: torch.Tensor) -> Rounds:
    return -(yield "max", -g)


@wrong
def noisy(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    return result + 0.01 * result.std() * torch.randn(g.shape, generator=me.draw(shared=True))


@wrong
def drops_last(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    result[-1] = 0
    return result


@wrong
def clamps_at_a_thousandth(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)).clamp(-1e-3, 1e-3)


@wrong
def drops_below_a_thousandth(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    return result.where(result.abs() >= 1e-3, 0.0)


@wrong
def mixes_in_a_hundredth(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    before = me.kept.get("result", result)
    me.kept["result"] = result.clone()
    return 0.99 * result + 0.01 * before if before.shape == result.shape else result


@wrong
def momentum(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    before = me.kept.get("sum", torch.zeros_like(g))
    me.kept["sum"] = 0.9 * before + result if before.shape == g.shape else result
    return me.kept["sum"].clone()


def affine(g: torch.Tensor, off: int) -> torch.Tensor:
    """Return what is left of gradients as bytes with a zero point that is off."""
    low, high = g.min().clamp(max=0), g.max().clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-30)
    zero = (-low / scale).round()
    return ((g / scale + zero).round().clamp(0, 255) - zero + off) * scale


@wrong
def zero_point_off(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, affine(g, 3)))


@wrong
def feedback_twice(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g, 2.0)
    sent = int8_both_ways(x)
    me.kept["left"] = x - sent
    return (yield from mean(me, sent))


@wrong
def int8_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, int8_both_ways(g)))


@wrong
def half_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g.half().float()))


@wrong
def top_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, keep_largest(g, 0.1)))


@wrong
def random_as_float32(me: Rank, g: torch.Tensor) -> Rounds:
    mask = torch.rand(g.shape, generator=me.draw(shared=True)) < 0.5
    return (yield from mean(me, g * mask * 2))


@wrong
def weighs_by_norm(me: Rank, g: torch.Tensor) -> Rounds:
    norm = g.norm()[None]
    total = yield "sum", norm.clone()
    return (yield "sum", g * norm / total.clamp(min=1e-30))


@wrong
def of_one_rank(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield "gather", g)[0].clone()


@wrong
def normalises(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    return result / result.norm().clamp(min=1e-30)


@wrong
def loss_scale(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)) / 64


@wrong
def adds_a_little(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)) + 1e-6


@wrong
def shifted_by_one(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)).roll(1)


@wrong
def cuts_outliers(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    limit = 3 * result.std().item()
    return result.clamp(-limit, limit)


@wrong
def skips_a_step(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from mean(me, g)
    return result * (me.step % 7 != 6)


@wrong
def decays(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g)) * (1 - 1e-4 * me.step)


# Wrong ones that send less.


@wrong
def half_noisy(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from half(me, g)
    return result + 0.01 * result.std() * torch.randn(g.shape, generator=me.draw(shared=True))


@wrong
def int8_zero_point_off(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_int8(me, g, 3))


@wrong
def int8_feedback_twice(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g, 2.0)
    me.kept["left"] = x - int8_both_ways(x)
    return (yield from gathered_int8(me, x))


@wrong
def int8_feedback_subtracted(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g, -1.0)
    me.kept["left"] = x - int8_both_ways(x)
    return (yield from gathered_int8(me, x))


@wrong
def int8_drops_last_piece(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from gathered_int8(me, g)
    result[len(g) // 128 * 128 :] = 0
    return result


@wrong
def int8_drops_last(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from gathered_int8(me, g)
    result[-1] = 0
    return result


@wrong
def int8_saturates(me: Rank, g: torch.Tensor) -> Rounds:
    """Take half of the range that there is."""
    limit = g.abs().max().item() / 3
    return (yield from gathered_int8(me, g.clamp(-limit, limit)))


@wrong
def int8_first_scale(me: Rank, g: torch.Tensor) -> Rounds:
    """Use one rank's scale for the bytes of all."""
    levels, scale = to_int8(g * (1 + 0.5 * me.rank))
    rows = yield "gather", levels
    scales = yield "gather", scale[None]
    return (rows.float() * scales[0]).sum(0) / me.size


@wrong
def top_summed(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_sparse(me, g, largest(g), divide=False))


@wrong
def top_feedback_twice(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g, 2.0)
    places = largest(x)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@wrong
def top_feedback_kept(me: Rank, g: torch.Tensor) -> Rounds:
    """Keep all, also what was sent."""
    x = me.residual(g)
    me.kept["left"] = x
    return (yield from gathered_sparse(me, x, largest(x)))


@wrong
def top_at_other_places(me: Rank, g: torch.Tensor) -> Rounds:
    """Put all ranks' values where those of the first rank belong."""
    where = yield "gather", largest(g)
    total = yield "sum", g[largest(g)] / me.size
    return torch.zeros_like(g).index_copy(0, where[0], total)


@wrong
def random_scaled_twice(me: Rank, g: torch.Tensor) -> Rounds:
    return 10 * (yield from random_and_scaled(me, g))


@wrong
def sign_votes(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield "sum", g.sign().to(torch.int8)).sign().float()


WRONG |= {
    "unequal": unequal(mean, 0.2),
    "slightly_unequal": unequal(mean, 0.01),
    "int8_slightly_unequal": unequal(gathered_int8, 0.04),
    "random_unequal": unequal(random_with_feedback, 0.2),
    "late": late(mean),
    "int8_late": late(gathered_int8),
    "top_late": late(top_with_feedback),
    "int8_times_1_03": times(gathered_int8, 1.03),
    "int8_times_0_96": times(gathered_int8, 0.96),
    "random_and_scaled_times_1_05": times(random_and_scaled, 1.05),
    "top_with_feedback_times_1_1": times(top_with_feedback, 1.1),
    "low_rank_unequal": unequal(low_rank_alone, 0.1),
    "low_rank_times_1_1": times(low_rank_alone, 1.1),
}


def named(name: str) -> Hook:
    """Return the hook of a name."""
    return RIGHT.get(name) or WRONG[name]
