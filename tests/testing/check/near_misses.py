"""Invented hooks around what is hard to see: factors, weights, noise, values put over values."""

from __future__ import annotations

import torch

from .held_out import scaled_rows
from .invented import (
    WRONG,
    Rank,
    Rounds,
    as_bytes,
    clipped,
    gathered_int8,
    gathered_sparse,
    int8_both_ways,
    largest,
    packed,
    right,
    scale_of,
    some,
    times,
    top,
    unequal,
    weight,
    wrong,
)


def own_places(me: Rank, g: torch.Tensor, share: float) -> torch.Tensor:
    return torch.randperm(len(g), generator=me.draw())[: max(1, int(share * len(g)))]


def overwritten(me: Rank, g: torch.Tensor, places: torch.Tensor) -> Rounds:
    """Put, where several ranks' values meet, the last one's."""
    where = yield "gather", places
    values = yield "gather", g[places]
    result = torch.zeros_like(g)
    for place, value in zip(where, values, strict=True):
        result[place] = value
    return result / me.size


def around_the_ring(me: Rank, g: torch.Tensor) -> Rounds:
    """Add what goes from rank to rank, in an order that is the same on all."""
    passed, rows = g, {me.rank: g}
    for i in range(1, me.size):
        passed = yield "pass", passed
        rows[(me.rank - i) % me.size] = passed
    return torch.stack([rows[rank].float() for rank in range(me.size)]).sum(0) / me.size


def noise(me: Rank, g: torch.Tensor) -> torch.Tensor:
    return torch.randn(g.shape, generator=me.draw(shared=True))


# Right ones.


@right
def logarithmic(me: Rank, g: torch.Tensor) -> Rounds:
    """A byte each for the nearest power of 1.3."""
    base = torch.tensor(1.3).log()
    code = (g.abs().clamp(min=1e-30).log() / base).round().clamp(-70, 40) + 71
    rows = yield "gather", torch.where(g.abs() < 1e-8, 0.0, code * g.sign()).to(torch.int8)
    parts = [r.sign() * ((r.float().abs() - 71) * base).exp() for r in rows]
    return torch.stack(parts).sum(0) / me.size


@right
def companded(me: Rank, g: torch.Tensor) -> Rounds:
    """Levels that are closer for small values, as of telephones."""
    top = scale_of(g, 1)
    code = g.sign() * torch.log1p(255 * g.abs() / top) / torch.log(torch.tensor(256.0)) * 127
    rows = yield "gather", as_bytes(code.round().to(torch.int8), top)
    parts = []
    for r in rows:
        x = r[:-4].view(torch.int8).float() / 127
        parts.append(x.sign() * (256 ** x.abs() - 1) / 255 * r[-4:].clone().view(torch.float32))
    return torch.stack(parts).sum(0) / me.size


@right
def float8_truncated(me: Rank, g: torch.Tensor) -> Rounds:
    """Three bits of mantissa, the rest cut off."""
    cut = (g / scale_of(g, 400)).view(torch.int32) & -(1 << 20)
    rows = yield (
        "gather",
        as_bytes(cut.view(torch.float32).to(torch.float8_e4m3fn), scale_of(g, 400)),
    )
    return torch.stack(scaled_rows(rows, torch.float8_e4m3fn)).sum(0) / me.size


@right
def int8_floored(me: Rank, g: torch.Tensor) -> Rounds:
    scale = scale_of(g)
    rows = yield "gather", as_bytes((g / scale).floor().to(torch.int8), scale)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


def affine_levels(me: Rank, g: torch.Tensor, levels: int) -> Rounds:
    """Send levels from the least to the largest, by chance, a byte each."""
    low, high = g.min(), g.max()
    unit = ((high - low) / levels).clamp(min=1e-30)
    drawn = ((g - low) / unit + torch.rand(g.shape, generator=me.draw())).floor()
    rows = yield "gather", as_bytes(drawn.clamp(0, levels).to(torch.uint8), low, unit)
    total = torch.zeros_like(g)
    for row in rows:
        start, step = row[-8:].clone().view(torch.float32)
        total += row[:-8].float() * step + start
    return total / me.size


@right
def thirty_levels_as_bytes(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from affine_levels(me, g, 31))


@right
def int8_by_chance_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    scale = scale_of(x)
    levels = (x / scale + torch.rand(g.shape, generator=me.draw())).floor().clamp(-127, 127)
    me.kept["left"] = x - levels * scale
    rows = yield "gather", as_bytes(levels.to(torch.int8), scale)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


@right
def ring(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from around_the_ring(me, g))


@right
def ring_clips(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from around_the_ring(me, clipped(g, 1.0)))


@right
def top_in_int8(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_sparse(me, int8_both_ways(g), largest(g)))


@right
def top_of_clipped(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from top(me, clipped(g, 1.0)))


@right
def top_of_one_rank_from_all(me: Rank, g: torch.Tensor) -> Rounds:
    """ScaleCom: one rank after another says at which places all send."""
    x = me.residual(g)
    where = (yield "gather", largest(x))[me.step % me.size]
    me.kept["left"] = x.index_fill(0, where, 0.0)
    total = yield "sum", x[where] / me.size
    return torch.zeros_like(g).index_copy(0, where, total)


@right
def random_of_each_rank(me: Rank, g: torch.Tensor) -> Rounds:
    places = own_places(me, g, 0.1)
    return (yield from gathered_sparse(me, g * (len(g) / len(places)), places))


@right
def permuted(me: Rank, g: torch.Tensor) -> Rounds:
    """PermK: each rank sends its own share of all places, times the number of ranks."""
    order = torch.randperm(len(g), generator=me.draw(shared=True))
    length = len(g) // me.size
    mine = order[me.rank * length : (me.rank + 1) * length]
    return (yield from gathered_sparse(me, g * (len(g) / length), mine))


@right
def above_a_threshold(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = torch.where(x.abs() > 3 * g.abs().mean(), x, 0.0)
    me.kept["left"] = x - sent
    count = yield "max", (sent != 0).sum()[None].float()
    return (yield from gathered_sparse(me, sent, largest(sent, (int(count) + 0.5) / len(g))))


@right
def blocks_in_turn(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    mine = torch.arange(len(g)) % 5 == me.step % 5
    me.kept["left"] = x * ~mine
    result = torch.zeros_like(g)
    result[mine] = yield "sum", x[mine] / me.size
    return result


@right
def clips_then_keeps_what_is_left(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(clipped(g, 1.0))
    places = largest(x, 0.1)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


# Wrong ones: factors in 8 bits.


@wrong
def int8_of_a_level_too_many(me: Rank, g: torch.Tensor) -> Rounds:
    """Send multiples of 1/61 of the largest element, and take them for 1/60."""
    top = (yield "max", g.abs().max()[None]).clamp(min=1e-30)
    levels = 120 // me.size
    total = yield "sum", (g / top * (levels + 1)).round().to(torch.int8)
    return total.float() * top / levels / me.size


# Noise.


@wrong
def int8_noisy(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from gathered_int8(me, g)
    return result + 0.15 * result.std() * noise(me, g)


@wrong
def int8_noisy_by_factors(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_int8(me, g)) * (1 + 0.3 * noise(me, g))


@wrong
def int8_drops_at_random(me: Rank, g: torch.Tensor) -> Rounds:
    """Dropout of gradients, right in the mean."""
    mask = torch.rand(g.shape, generator=me.draw(shared=True)) < 0.9
    return (yield from gathered_int8(me, g)) * mask / 0.9


# Values put over values, and weights of sparse hooks.


@wrong
def top_overwritten(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from overwritten(me, g, largest(g)))


@wrong
def top_overwritten_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = largest(x)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from overwritten(me, x, places))


@wrong
def random_overwritten(me: Rank, g: torch.Tensor) -> Rounds:
    places = own_places(me, g, 0.1)
    return (yield from overwritten(me, g * (len(g) / len(places)), places))


@wrong
def top_of_halves_unequal(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_sparse(me, (g * weight(me, 0.03)).half().float(), largest(g)))


# What loses more than its bytes explain.


@wrong
def int8_of_a_fixed_range_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    """An element above 4 deviations is owed more in each step, for as long as it stays there."""
    x = me.residual(g)
    limit = 4 * g.std().item() + 1e-30
    sent = int8_both_ways(x.clamp(-limit, limit))
    me.kept["left"] = x - sent
    return (yield from gathered_int8(me, x.clamp(-limit, limit)))


@wrong
def sign_as_bytes(me: Rank, g: torch.Tensor) -> Rounds:
    """A byte for each sign, and what that loses is lost, also in the mean; ``sign`` sends bits."""
    rows = yield "gather", as_bytes(g.sign().to(torch.int8), g.abs().mean())
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


@wrong
def sign_unequal(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from packed(me, g, g * weight(me)))


# Invented after the rules.


@right
def random_bernoulli_scaled(me: Rank, g: torch.Tensor) -> Rounds:
    mask = torch.rand(g.shape, generator=me.draw()) < 0.2
    count = yield "max", mask.sum()[None].float()
    padded = largest(mask.float(), (int(count) + 0.5) / len(g))
    return (yield from gathered_sparse(me, g * mask * 5, padded))


@right
def by_importance(me: Rank, g: torch.Tensor) -> Rounds:
    """Places by chance, larger ones more often, times how rarely they are sent."""
    chance = (g.abs() / g.abs().mean().clamp(min=1e-30) * 0.1).clamp(1e-6, 1)
    mask = torch.rand(g.shape, generator=me.draw()) < chance
    count = yield "max", mask.sum()[None].float()
    padded = largest(mask.float(), (int(count) + 0.5) / len(g))
    return (yield from gathered_sparse(me, g / chance * mask, padded))


@right
def random_with_feedback_of_halves(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = some(me, g, 0.25)
    sent = x[places].half()
    me.kept["left"] = x.index_copy(0, places, x[places] - sent.float())
    rows = yield "gather", sent
    return torch.zeros_like(g).index_copy(0, places, rows.float().sum(0) / me.size)


@right
def top_by_chance_in_int8(me: Rank, g: torch.Tensor) -> Rounds:
    places = largest(g, 0.1)
    scale = scale_of(g)
    drawn = (g / scale + torch.rand(g.shape, generator=me.draw())).floor() * scale
    return (yield from gathered_sparse(me, drawn, places))


@right
def qsgd_of_15_levels(me: Rank, g: torch.Tensor) -> Rounds:
    scale = scale_of(g, 15)
    levels = (g / scale + torch.rand(g.shape, generator=me.draw())).floor()
    rows = yield "gather", as_bytes(levels.to(torch.int8), scale)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


@right
def float8_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    scale = scale_of(x, 400)
    sent = (x / scale).to(torch.float8_e4m3fn)
    me.kept["left"] = x - sent.float() * scale
    rows = yield "gather", as_bytes(sent, scale)
    return torch.stack(scaled_rows(rows, torch.float8_e4m3fn)).sum(0) / me.size


@right
def top_then_int8_of_the_rest(me: Rank, g: torch.Tensor) -> Rounds:
    """Outliers as they are, the rest in bytes."""
    places = largest(g, 0.01)
    rest = g.index_fill(0, places, 0.0)
    return (yield from gathered_int8(me, rest)) + (yield from gathered_sparse(me, g, places))


@wrong
def top_without_last_rank(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_sparse(me, g * (me.rank < me.size - 1), largest(g)))


@wrong
def uint8_with_noise_of_a_third(me: Rank, g: torch.Tensor) -> Rounds:
    own = torch.randn(g.shape, generator=me.draw())
    return (yield from affine_levels(me, g + g.abs().mean() / 3 * own, 255))


@wrong
def thirty_levels_noisy(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from affine_levels(me, g, 31)
    return result + 0.1 * result.std() * noise(me, g)


@wrong
def top_noisy(me: Rank, g: torch.Tensor) -> Rounds:
    values = g * (1 + 0.02 * torch.randn(g.shape, generator=me.draw()))
    return (yield from gathered_sparse(me, values, largest(g)))


WRONG |= {
    "random_of_each_rank_unequal": unequal(random_of_each_rank, 0.1),
    "ring_unequal": unequal(ring, 0.1),
    "ring_times_1_1": times(ring, 1.1),
    "qsgd_times_1_04": times(qsgd_of_15_levels, 1.04),
    "float8_with_feedback_unequal": unequal(float8_with_feedback, 0.04),
    "random_with_feedback_slightly_unequal": unequal(random_with_feedback_of_halves, 0.05),
    "random_with_feedback_times_1_05": times(random_with_feedback_of_halves, 1.05),
}
