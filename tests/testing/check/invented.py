"""Hooks that average, and hooks that nearly do: the collection that ``hooktrace check`` is held to.

A hook is a generator of one rank: it is given its own gradients, yields ``("sum", tensor)``,
``("max", tensor)``, ``("gather", tensor)`` or ``("pass", tensor)``, gets what a collective of that
kind gives (``pass``: the tensor of the rank before), and returns the bucket's result.

``simulate.py`` runs all ranks of one in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad, softshrink

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


def one_round(kind: str, send: Change, finish: Change | None = None) -> Hook:
    """Send what ``send`` makes of gradients in one collective, and finish with what comes."""

    def hook(me: Rank, g: torch.Tensor) -> Rounds:
        found = yield kind, send(me, g)
        return finish(me, found) if finish else found

    return hook


def same(me: Rank, x: torch.Tensor) -> torch.Tensor:
    return x


mean = one_round("sum", lambda me, g: g / me.size)


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
    return one_round("sum", lambda me, g: (g / me.size).to(dtype), lambda me, r: r.float())


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
    values: Change = same,
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


# Right ones that are no variant of another.


def float32_then_half(me: Rank, g: torch.Tensor) -> Rounds:
    total = yield "sum", g / me.size
    parts = total.tensor_split(me.size)
    padded = [torch.cat([part, part.new_zeros(len(parts[0]) - len(part))]) for part in parts]
    rows = yield "gather", padded[me.rank].half()
    return torch.cat([row[: len(part)] for row, part in zip(rows, parts, strict=True)]).float()


def int8_with_room(me: Rank, g: torch.Tensor) -> Rounds:
    """All-reduce bytes under one scale, with room for the sum."""
    unit = ((yield "max", g.abs().max()[None]) / (127 // me.size)).clamp(min=1e-30)
    total = yield "sum", (g / unit).round().to(torch.int8)
    return total.float() * unit / me.size


def of_differences(hook: Hook) -> Hook:
    """EF21: send how the gradients differ from what all know of them."""

    def differences(me: Rank, g: torch.Tensor) -> Rounds:
        mine, known = me.recall("mine", g), me.recall("known", g)
        received = yield from hook(me, g - mine)
        me.kept |= {"mine": g - me.kept["left"], "known": known + received}
        return me.kept["known"].clone()

    return differences


def ternary(me: Rank, g: torch.Tensor) -> Rounds:
    """TernGrad: -1, 0 or 1 by chance, four to a byte."""
    scale = scale_of(g, 1)
    rows = yield from packed(me, drawn(me, g / scale) + 1, 4, scale)
    return ((rows[:, :-1] - 1) * rows[:, -1:]).sum(0) / me.size


def four_bits(me: Rank, g: torch.Tensor) -> Rounds:
    rows = yield from packed(me, (g / scale_of(g, 7)).round() + 8, 16, scale_of(g, 7))
    return ((rows[:, :-1] - 8) * rows[:, -1:]).sum(0) / me.size


def sign_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    me.kept["left"] = x - torch.where(x >= 0, 1.0, -1.0) * x.abs().mean()
    return (yield from sign_bits(me, x))


def one_bit_both_ways(me: Rank, g: torch.Tensor) -> Rounds:
    """1-bit Adam's two compressed rounds, each with its own feedback; server part of each rank."""
    average = yield from sign_with_feedback(me, g)
    parts = average.tensor_split(me.size)
    y = parts[me.rank] + me.recall("server", parts[me.rank])
    me.kept["server"] = y - torch.where(y >= 0, 1.0, -1.0) * y.abs().mean()
    padded = torch.cat([y, y.new_zeros(len(parts[0]) - len(y))])
    rows = yield from packed(me, padded >= 0, 2, y.abs().mean())
    decoded = (rows[:, :-1] * 2 - 1) * rows[:, -1:]
    return torch.cat([row[: len(part)] for row, part in zip(decoded, parts, strict=True)])


def natural(me: Rank, g: torch.Tensor) -> Rounds:
    """Powers of two by chance, a byte each (natural compression)."""
    mantissa, exponent = torch.frexp(g)
    up = torch.rand(g.shape, generator=me.draw()) < (mantissa.abs() * 2 - 1)
    power = (exponent - 1 + up.int()).clamp(-60, 66)
    rows = yield "gather", torch.where(g == 0, 0, (power + 61) * g.sign()).to(torch.int8)
    parts = torch.where(rows == 0, 0.0, rows.sign() * torch.exp2(rows.float().abs() - 61))
    return parts.sum(0) / me.size


def logarithmic(me: Rank, g: torch.Tensor) -> Rounds:
    """A byte each for the nearest power of 1.3."""
    base = torch.tensor(1.3).log()
    code = (g.abs().clamp(min=1e-30).log() / base).round().clamp(-70, 40) + 71
    rows = yield "gather", torch.where(g.abs() < 1e-8, 0.0, code * g.sign()).to(torch.int8)
    return (rows.sign() * ((rows.float().abs() - 71) * base).exp()).sum(0) / me.size


def companded(me: Rank, g: torch.Tensor) -> Rounds:
    """Levels that are closer for small values, as of telephones."""
    code = g.sign() * torch.log1p(255 * g.abs() / scale_of(g, 1)) / torch.tensor(256.0).log() * 127
    rows = yield "gather", as_bytes(code.round().to(torch.int8), scale_of(g, 1))
    x = rows[:, :-4].view(torch.int8).float() / 127
    tops = rows[:, -4:].clone().view(torch.float32)
    return (x.sign() * (256 ** x.abs() - 1) / 255 * tops).sum(0) / me.size


def every_fourth_step(me: Rank, g: torch.Tensor) -> Rounds:
    """Collect gradients, and send their sum now and then."""
    x = me.residual(g)
    is_due = me.step % 4 == 3
    me.kept["left"] = x * (not is_due)
    return (yield from mean(me, x)) if is_due else torch.zeros_like(g)


def plain_at_first(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from (mean if me.step < 8 else RIGHT["top_with_feedback"])(me, g))


def int8_of_large_buckets(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from (mean if me.bucket % 2 else int8)(me, g))


def global_top(me: Rank, g: torch.Tensor) -> Rounds:
    """gTop-k: of all that is sent the largest; what was not taken goes back."""
    x = me.residual(g)
    result = yield from sparse(top())(me, x)
    kept = torch.zeros_like(g).index_fill(0, largest(result), 1.0)
    me.kept["left"] = x * (1 - kept * torch.zeros_like(g).index_fill(0, largest(x), 1.0))
    return result * kept


def top_of_one_rank_from_all(me: Rank, g: torch.Tensor) -> Rounds:
    """ScaleCom: one rank after another says at which places all send."""
    where = (yield "gather", largest(me.residual(g)))[me.step % me.size]
    return (yield from shared(lambda me, x: where, 1.0)(me, g))


def sketch(me: Rank, g: torch.Tensor) -> Rounds:
    """Count sketch, one row, new hashes in each step: right in the mean."""
    draw, width = me.draw(shared=True), max(1, len(g) // 5)
    where = torch.randint(0, width, (len(g),), generator=draw)
    sign = torch.randint(0, 2, (len(g),), generator=draw) * 2.0 - 1
    total = yield "sum", torch.zeros(width).index_add(0, where, sign * g) / me.size
    return total[where] * sign


def permuted(me: Rank, g: torch.Tensor) -> Rounds:
    """PermK: each rank sends its own share of all places, times the number of ranks."""
    order, n = torch.randperm(len(g), generator=me.draw(shared=True)), len(g) // me.size
    mine = order[me.rank * n : (me.rank + 1) * n]
    return (yield from sparse(lambda me, x: mine)(me, g * (len(g) / n)))


def above_a_threshold(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    sent = torch.where(x.abs() > 3 * g.abs().mean(), x, 0.0)
    count = yield "max", (sent != 0).sum()[None].float()
    result = yield from sparse(top((int(count) + 0.5) / len(g)))(me, sent)
    me.kept["left"] = x - sent
    return result


def top_then_int8_of_the_rest(me: Rank, g: torch.Tensor) -> Rounds:
    """Outliers as they are, the rest in bytes."""
    rest = g.index_fill(0, largest(g, 0.01), 0.0)
    return (yield from int8(me, rest)) + (yield from sparse(top(0.01))(me, g))


def block(me: Rank, x: torch.Tensor) -> torch.Tensor:
    n = len(x) // 8
    start = torch.randint(0, len(x) - n + 1, (1,), generator=me.draw(shared=True))
    return torch.arange(n) + start


def every_fifth(me: Rank, x: torch.Tensor) -> torch.Tensor:
    return torch.arange(me.step % 5, len(x), 5)


def keep_largest(g: torch.Tensor, share: float = 0.05) -> torch.Tensor:
    return torch.zeros_like(g).index_copy(0, largest(g, share), g[largest(g, share)])


def scaled_up(hook: Hook, share: float) -> Hook:
    """Return a hook that sends a share of all places, and multiplies them by its inverse."""
    return before(hook, lambda me, g: g * (len(g) / max(1, int(share * len(g)))))


def clip(norm: float, hook: Hook = mean) -> Hook:
    return before(hook, lambda me, g: clipped(g, norm))


int8 = scaled()
int8_fed = scaled(keeps=1.0)
int8_drawn = scaled(drawn)
e4m3 = scaled(same, torch.float8_e4m3fn, 400)
e4m3_fed = scaled(same, torch.float8_e4m3fn, 400, keeps=1.0)
qsgd = scaled(drawn, top=15)
halves_somewhere = shared(some(0.25), 1.0, torch.float16)
random_scaled = scaled_up(shared(some(0.1)), 0.1)
of_each_rank = scaled_up(sparse(some(0.1, shared=False)), 0.1)
sign_bytes = scaled(lambda me, x: x.sign(), top=1, reach=lambda x: x.abs().mean())

RIGHT: dict[str, Hook] = {
    "plain": mean,
    "divides_afterwards": one_round("sum", same, lambda me, r: r / me.size),
    "adds_gathered": one_round("gather", same, lambda me, r: r.flip(0).sum(0) / me.size),
    "in_float64": summed_as(torch.float64),
    "in_pieces": in_parts(mean, lambda g: g.split(500)),
    "half": summed_as(torch.float16),
    "bfloat": summed_as(torch.bfloat16),
    "bfloat_truncated": before(summed_as(torch.bfloat16), lambda me, g: truncated(me, g, 16)),
    "half_with_feedback": gathered_as(torch.float16, 1.0),
    "float32_then_half": float32_then_half,
    "int8": int8,
    "int8_with_room": int8_with_room,
    "int8_by_chance": int8_drawn,
    "int8_with_feedback": int8_fed,
    "int8_with_feedback_as_float32": dense(int8_both_ways, 1.0),
    "int8_of_differences": of_differences(int8),
    "float8_e4m3": e4m3,
    "float8_e5m2": scaled(same, torch.float8_e5m2, 400),
    "four_bits": four_bits,
    "top": sparse(top()),
    "top_with_feedback": sparse(top(), 1.0),
    "top_hundredth_with_feedback": sparse(top(0.01), 1.0),
    "top_with_feedback_as_float32": dense(keep_largest, 1.0),
    "random_with_feedback": shared(some(0.1), 1.0),
    "random_and_scaled": random_scaled,
    "random_hundredth_and_scaled": scaled_up(shared(some(0.01)), 0.01),
    "random_half": shared(some(0.5)),
    "sign_with_feedback": sign_with_feedback,
    "sign_with_feedback_as_float32": dense(signs, 1.0),
    "sign_with_feedback_as_bytes": scaled(
        lambda me, x: x.sign(), top=1, reach=lambda x: x.abs().mean(), keeps=1.0
    ),
    "sign": sign_bits,
    "ternary": ternary,
    "low_rank_with_feedback": low_rank(keeps=True),
    "low_rank_alone": low_rank(),
    "rank_8": low_rank(8),
    "clips_the_average": after(mean, lambda me, result: clipped(result, 0.5)),
    "clips_each_rank": clip(1.0),
    "clips_values_above_1": after(mean, lambda me, result: result.clamp(-1, 1)),
    "clips_bfloats": clip(1.0, summed_as(torch.bfloat16)),
    "clips_int8_with_feedback": clip(1.0, int8_fed),
    "every_fourth_step": every_fourth_step,
    "plain_at_first": plain_at_first,
    "int8_of_large_buckets": int8_of_large_buckets,
    "int8_by_rows": in_parts(int8, lambda g: g.split(512)),
    "int8_in_thirds": in_parts(int8, lambda g: g.tensor_split(3)),
    "qsgd_by_norm": scaled(drawn, reach=torch.linalg.vector_norm),
    "ternary_as_bytes": scaled(drawn, top=1),
    "natural": natural,
    "one_bit_both_ways": one_bit_both_ways,
    "global_top": global_top,
    "random_block_with_feedback": shared(block, 1.0),
    "sketch": sketch,
    "clips_each_value_to_its_tail": before(mean, lambda me, g: g.clamp(-5, 5)),
    "ef21_top": of_differences(sparse(top(0.2))),
    "int8_truncated": scaled(same),
    "logarithmic": logarithmic,
    "companded": companded,
    "float8_truncated": scaled(truncated, torch.float8_e4m3fn, 400),
    "int8_floored": scaled(lambda me, x: x.floor()),
    "uint8_by_chance": affine(255),
    "thirty_levels_as_bytes": affine(31),
    "twelve_levels_as_bytes": affine(11),
    "int8_by_chance_with_feedback": scaled(drawn, keeps=1.0),
    "ring": ring,
    "ring_of_halves": before(ring, lambda me, g: g.half()),
    "ring_of_sparse": before(ring, lambda me, g: keep_largest(g)),
    "ring_clips": clip(1.0, ring),
    "top_in_int8": sparse(top(), values=lambda me, x: int8_both_ways(x)),
    "top_of_halves": sparse(top(), values=lambda me, x: x.half().float()),
    "top_of_clipped": clip(1.0, sparse(top())),
    "top_of_one_rank_from_all": top_of_one_rank_from_all,
    "largest_of_each_block": sparse(of_each_block, 1.0),
    "random_of_each_rank": of_each_rank,
    "permuted": permuted,
    "above_a_threshold": above_a_threshold,
    "blocks_in_turn": shared(every_fifth, 1.0),
    "clips_then_keeps_what_is_left": clip(1.0, sparse(top(0.1), 1.0)),
    "random_bernoulli_scaled": by_chance(lambda g: torch.full_like(g, 0.2)),
    "by_importance": by_chance(
        lambda g: (g.abs() / g.abs().mean().clamp(min=1e-30) * 0.1).clamp(1e-6, 1)
    ),
    "random_with_feedback_of_halves": halves_somewhere,
    "top_by_chance_in_int8": sparse(
        top(0.1), values=lambda me, x: drawn(me, x / scale_of(x)) * scale_of(x)
    ),
    "qsgd_of_15_levels": qsgd,
    "float8_with_feedback": e4m3_fed,
    "top_then_int8_of_the_rest": top_then_int8_of_the_rest,
}

# Wrong ones that are no variant of another.


def mixed(old: float, new: float) -> Hook:
    """Return a hook that mixes its results with its last one."""

    def mix(me: Rank, result: torch.Tensor) -> torch.Tensor:
        last = me.kept.get("mixed", result * (1 - new) / (old or 1.0))
        same = last.shape == result.shape
        me.kept["mixed"] = old * last + new * result if same else result
        return me.kept["mixed"].clone()

    return after(mean, mix)


def mixes_in_a_hundredth(me: Rank, result: torch.Tensor) -> torch.Tensor:
    last = me.recall("last", result)
    me.kept["last"] = result.clone()
    return 0.99 * result + 0.01 * last if me.step else result


def affine_off(g: torch.Tensor) -> torch.Tensor:
    """Return what is left of gradients as bytes with a zero point that is off."""
    low, high = g.min().clamp(max=0), g.max().clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-30)
    zero = (-low / scale).round()
    return ((g / scale + zero).round().clamp(0, 255) - zero + 3) * scale


of_one_rank = one_round("gather", same, lambda me, r: r[0].clone())


def weighs_by_norm(me: Rank, g: torch.Tensor) -> Rounds:
    total = yield "sum", g.norm()[None]
    return (yield "sum", g * g.norm() / total.clamp(min=1e-30))


def root_mean_square(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g * g)).sqrt() * (yield from mean(me, g)).sign()


def drops(hook: Hook, piece: int = 0) -> Hook:
    """Return a hook that leaves out the last element, or what does not fill a piece."""

    def drop(me: Rank, result: torch.Tensor) -> torch.Tensor:
        whole = len(result) // piece * piece if piece else len(result) - 1
        return torch.cat([result[:whole], torch.zeros(len(result) - whole)])

    return after(hook, drop)


def forgets(hook: Hook, bucket: int) -> Hook:
    return after(hook, lambda me, result: result * (me.bucket != bucket))


def half_range(me: Rank, x: torch.Tensor) -> torch.Tensor:
    """Take a third of the range that there is."""
    return x.clamp(-127 / 3, 127 / 3).round()


def int8_first_scale(me: Rank, g: torch.Tensor) -> Rounds:
    """Use one rank's scale for the bytes of all."""
    scale = scale_of(g * (1 + 0.5 * me.rank))
    rows = yield "gather", rounded(me, g * (1 + 0.5 * me.rank) / scale).to(torch.int8)
    scales = yield "gather", scale[None]
    return (rows.float() * scales[0]).sum(0) / me.size


def int8_wraps(me: Rank, g: torch.Tensor) -> Rounds:
    """No room for the sum: bytes wrap around."""
    scale = (yield "max", g.abs().max()[None]).clamp(min=1e-30) / 127
    total = yield "sum", (g / scale).round().to(torch.int8)
    return total.float() * scale / me.size


def int8_of_a_level_too_many(me: Rank, g: torch.Tensor) -> Rounds:
    """Send multiples of 1/61 of the largest element, and take them for 1/60."""
    largest_of_all = (yield "max", g.abs().max()[None]).clamp(min=1e-30)
    levels = 120 // me.size
    total = yield "sum", (g / largest_of_all * (levels + 1)).round().to(torch.int8)
    return total.float() * largest_of_all / levels / me.size


def int8_skips_a_bucket(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from (of_one_rank if me.bucket == 7 else int8)(me, g))


def int8_of_a_fixed_range_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    """An element above 4 deviations is owed more in each step, for as long as it stays there."""
    x = me.residual(g)
    limit = 4 * g.std().item() + 1e-30
    result = yield from int8(me, x.clamp(-limit, limit))
    me.kept["left"] = x - int8_both_ways(x.clamp(-limit, limit))
    return result


def int8_with_feedback_clamped(me: Rank, g: torch.Tensor) -> Rounds:
    """A range of three deviations of what is to be sent."""
    x = me.residual(g)
    limit = 3 * x.std().item() + 1e-30
    result = yield from int8(me, x.clamp(-limit, limit))
    me.kept["left"] = x - int8_both_ways(x.clamp(-limit, limit))
    return result


def top_at_other_places(me: Rank, g: torch.Tensor) -> Rounds:
    """Put all ranks' values where those of the first rank belong."""
    where = yield "gather", largest(g)
    total = yield "sum", g[largest(g)] / me.size
    return torch.zeros_like(g).index_copy(0, where[0], total)


def top_of_one_rank(me: Rank, g: torch.Tensor) -> Rounds:
    where = yield "gather", largest(g)
    values = yield "gather", g[largest(g)]
    return torch.zeros_like(g).index_copy(0, where[0], values[0])


_SHARED: dict[tuple[int, int], torch.Tensor] = {}


def top_feedback_of_another_bucket(me: Rank, g: torch.Tensor) -> Rounds:
    """One residual for all buckets."""
    left = _SHARED.get((me.size, me.rank)) if me.step or me.bucket else None
    x = g + left if left is not None and left.shape == g.shape else g.clone()
    result = yield from sparse(top())(me, x)
    _SHARED[me.size, me.rank] = me.kept["left"]
    return result


def less_the_share(me: Rank, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Keep also most of what was sent: the share that was divided is subtracted."""
    return x.index_copy(0, chosen, x[chosen] - x[chosen] / me.size)


def dropped_out(me: Rank, g: torch.Tensor, share: float) -> torch.Tensor:
    return g * (torch.rand(g.shape, generator=me.draw(shared=True)) < share) / share


def fixed(me: Rank, g: torch.Tensor) -> torch.Tensor:
    return torch.randn(g.shape, generator=torch.Generator().manual_seed(me.bucket))


halves_weighed = sparse(
    top(), values=lambda me, x: (x * (1.03 if me.rank % 2 == 0 else 0.97)).half().float()
)

WRONG: dict[str, Hook] = {
    "summed": summed(mean),
    "averaged_twice": after(mean, lambda me, result: result / me.size),
    "nine_tenths": times(mean, 0.9),
    "loss_scale": times(mean, 1 / 64),
    "maximum": one_round("max", same),
    "minimum": one_round("max", lambda me, g: -g, lambda me, r: -r),
    "noisy": with_noise(mean, 0.01),
    "noisy_by_factors": after(mean, lambda me, r: r * (1 + 0.01 * noise(me, r))),
    "drops_last": drops(mean),
    "only_whole_pieces": drops(mean, 100),
    "forgets_a_bucket": forgets(mean, 3),
    "clamps_at_a_thousandth": after(mean, lambda me, r: r.clamp(-1e-3, 1e-3)),
    "clamps_inputs": before(mean, lambda me, g: g.clamp(-1e-3, 1e-3)),
    "drops_below_a_thousandth": after(mean, lambda me, r: r.where(r.abs() >= 1e-3, 0.0)),
    "raises_to_a_thousandth": after(mean, lambda me, r: r.abs().clamp(min=1e-3) * r.sign()),
    "shrinks": after(mean, lambda me, r: softshrink(r, 1e-4)),
    "mixes_in_a_hundredth": after(mean, mixes_in_a_hundredth),
    "momentum": mixed(0.9, 1.0),
    "smooths": mixed(0.9, 0.1),
    "zero_point_off": dense(affine_off),
    "feedback_twice": dense(int8_both_ways, 2.0),
    "int8_as_float32": dense(int8_both_ways),
    "half_as_float32": dense(lambda g: g.half().float()),
    "sign_as_float32": dense(signs),
    "top_as_float32": dense(lambda g: keep_largest(g, 0.1)),
    "random_as_float32": before(mean, lambda me, g: dropped_out(me, g, 0.5)),
    "weighs_by_norm": weighs_by_norm,
    "of_one_rank": of_one_rank,
    "without_one_rank": one_round("gather", same, lambda me, r: r[1:].sum(0) / me.size),
    "normalises": after(mean, lambda me, r: r / r.norm().clamp(min=1e-30)),
    "centralises": after(mean, lambda me, r: r - r.mean()),
    "adds_a_little": after(mean, lambda me, r: r + 1e-6),
    "weight_decay": after(mean, lambda me, r: r + 1e-4 * fixed(me, r)),
    "signs_only": after(mean, lambda me, r: r.sign()),
    "root_mean_square": root_mean_square,
    "shifted_by_one": after(mean, lambda me, r: r.roll(1)),
    "backwards": after(mean, lambda me, r: r.flip(0)),
    "cuts_outliers": after(mean, lambda me, r: r.clamp(-3 * r.std(), 3 * r.std())),
    "skips_a_step": after(mean, lambda me, r: r * (me.step % 7 != 6)),
    "decays": after(mean, lambda me, r: r * (1 - 1e-4 * me.step)),
    "clips_everything": after(mean, lambda me, r: clipped(r, 1e-3)),
    "unequal": unequal(mean, 0.2),
    "slightly_unequal": unequal(mean, 0.01),
    "late": late(mean),
    # 16 bits.
    "half_noisy": with_noise(summed_as(torch.float16), 0.01),
    "half_unequal": unequal(summed_as(torch.float16), 0.2),
    "half_maximum": one_round("max", lambda me, g: g.half(), lambda me, r: r.float()),
    "half_clamped": before(summed_as(torch.float16), lambda me, g: g.clamp(-1e-3, 1e-3)),
    "half_weight_decay": after(summed_as(torch.float16), lambda me, r: r + 1e-3 * fixed(me, r)),
    "half_feedback_subtracted": gathered_as(torch.float16, -1.0),
    "bfloat_late": late(summed_as(torch.bfloat16)),
    # 8 bits.
    "int8_unequal": unequal(int8, 0.2),
    "int8_slightly_unequal": unequal(int8, 0.04),
    "int8_summed": summed(int8),
    "int8_late": late(int8),
    "int8_times_1_03": times(int8, 1.03),
    "int8_times_0_96": times(int8, 0.96),
    "int8_by_chance_times_1_04": times(int8_drawn, 1.04),
    "int8_with_feedback_times_1_05": times(int8_fed, 1.05),
    "qsgd_times_1_04": times(qsgd, 1.04),
    "float8_times_1_04": times(e4m3, 1.04),
    "float8_with_feedback_unequal": unequal(e4m3_fed, 0.04),
    "int8_zero_point_off": scaled(shift=3),
    "int8_zero_point_off_by_one": scaled(shift=1),
    "int8_feedback_twice": scaled(keeps=2.0),
    "int8_feedback_subtracted": scaled(keeps=-1.0),
    "int8_drops_last_piece": drops(int8, 128),
    "int8_drops_last": drops(int8),
    "int8_saturates": scaled(half_range),
    "int8_first_scale": int8_first_scale,
    "int8_wraps": int8_wraps,
    "int8_of_a_level_too_many": int8_of_a_level_too_many,
    "int8_skips_a_bucket": int8_skips_a_bucket,
    "int8_of_a_fixed_range_with_feedback": int8_of_a_fixed_range_with_feedback,
    "int8_with_feedback_clamped": int8_with_feedback_clamped,
    "int8_noisy": with_noise(int8, 0.15),
    "int8_very_noisy": with_noise(int8, 1.0),
    "int8_noisy_by_factors": after(int8, lambda me, r: r * (1 + 0.3 * noise(me, r))),
    "int8_of_noisy": before(int8, lambda me, g: g + 0.4 * g.std() * noise(me, g, shared=False)),
    "int8_drops_at_random": after(int8, lambda me, r: dropped_out(me, r, 0.9)),
    "uint8_with_noise_of_a_third": before(
        affine(255), lambda me, g: g + g.abs().mean() / 3 * noise(me, g, shared=False)
    ),
    "thirty_levels_noisy": with_noise(affine(31), 0.1),
    "sign_votes": one_round(
        "sum", lambda me, g: g.sign().to(torch.int8), lambda me, r: r.sign().float()
    ),
    "sign_as_bytes": sign_bytes,
    # Less than 8 bits.
    "sign_unequal": unequal(sign_bits, 0.2),
    "top_summed": summed(sparse(top())),
    "top_late": late(sparse(top(), 1.0)),
    "top_unequal": unequal(sparse(top()), 0.1),
    "top_slightly_unequal": unequal(sparse(top(), 1.0), -0.1),
    "top_of_halves_unequal": halves_weighed,
    "top_times_1_1": times(sparse(top()), 1.1),
    "top_with_feedback_times_1_1": times(sparse(top(), 1.0), 1.1),
    "top_feedback_twice": sparse(top(), 2.0),
    "top_feedback_subtracted": sparse(top(), -1.0),
    "top_feedback_kept": sparse(top(), 1.0, left=lambda me, x, chosen: x),
    "top_feedback_of_divided": sparse(top(), 1.0, left=less_the_share),
    "top_feedback_of_another_bucket": top_feedback_of_another_bucket,
    "top_at_other_places": top_at_other_places,
    "top_of_one_rank": top_of_one_rank,
    "top_without_last_rank": before(sparse(top()), lambda me, g: g * (me.rank < me.size - 1)),
    "top_without_last_element": sparse(lambda me, x: largest(x[:-1]), 1.0),
    "top_without_last_piece": sparse(lambda me, x: largest(x[: len(x) // 100 * 100]), 1.0),
    "top_without_a_bucket": forgets(sparse(top()), 2),
    "top_overwritten": sparse(top(), join=put),
    "top_overwritten_with_feedback": sparse(top(), 1.0, join=put),
    "top_hundredth_overwritten": sparse(top(0.01), join=put),
    "blocks_of_largest_overwritten": sparse(of_each_block, join=put),
    "top_noisy": sparse(top(), values=lambda me, x: x * (1 + 0.02 * noise(me, x, shared=False))),
    "random_scaled_twice": times(random_scaled, 10.0),
    "random_unequal": unequal(shared(some(0.1), 1.0), 0.2),
    "random_and_scaled_unequal": unequal(random_scaled, 0.1),
    "random_and_scaled_times_1_05": times(random_scaled, 1.05),
    "random_feedback_scaled": times(shared(some(0.1), 1.0), 10.0),
    "random_overwritten": scaled_up(sparse(some(0.1, shared=False), join=put), 0.1),
    "random_of_each_rank_unequal": unequal(of_each_rank, 0.1),
    "random_with_feedback_slightly_unequal": unequal(halves_somewhere, 0.05),
    "random_with_feedback_times_1_05": times(halves_somewhere, 1.05),
    "low_rank_unequal": unequal(low_rank(), 0.1),
    "low_rank_times_1_1": times(low_rank(), 1.1),
    "low_rank_summed": summed(low_rank()),
    "low_rank_feedback_summed": low_rank(keeps=True, times=True),
    "ring_unequal": unequal(ring, 0.1),
    "ring_times_1_1": times(ring, 1.1),
    "ring_of_halves_unequal": unequal(before(ring, lambda me, g: g.half()), 0.1),
    "ring_without_one_rank": before(
        ring, lambda me, g: g * (me.rank > 0) * me.size / (me.size - 1)
    ),
}
