"""Hooks that average, and hooks that nearly do: the collection that ``hooktrace check`` is held to.

A hook is a function of one bucket on all ranks at once: of their gradients, (ranks, numel), it
returns the result, (numel,), and says by the bucket's methods what goes over the wire.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad, softshrink

from hooktrace.records import Transfer


@dataclass
class Bucket:
    """``number``: its own; ``step``: how often it was called before.  ``kept``: its state."""

    size: int
    number: int = 0
    step: int = 0
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    sent: list[Transfer] = field(default_factory=list)

    def send(self, kind: str, dtype: str, count: int) -> None:
        """Say that each rank gives a collective so many bytes."""
        self.sent.append(Transfer(collective=kind, dtype=dtype, wire_bytes=count))

    def _sent(self, kind: str, *parts: torch.Tensor) -> None:
        dtype = "uint8" if len(parts) > 1 else str(parts[0].dtype).removeprefix("torch.")
        self.send(kind, dtype, sum(part[0].nbytes for part in parts))

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """Add up as gloo does: one rank after another, in the tensors' own dtype."""
        self._sent("sum", x)
        return functools.reduce(torch.add, x)

    def max(self, x: torch.Tensor) -> torch.Tensor:
        self._sent("max", x)
        return x.amax(0)

    def gather(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        """Gather ``x``; with ``more`` as bytes, in one tensor."""
        self._sent("gather", x, *more)
        return x

    def draw(self, rank: int = -1) -> torch.Generator:
        """Return random numbers for this step: a rank's own, or the same on all ranks."""
        return torch.Generator().manual_seed(1 + rank + 100 * self.number + 10_000 * self.step)

    def each(self, make: Callable[[torch.Generator], torch.Tensor]) -> torch.Tensor:
        """Return what ranks make of their own random numbers."""
        return torch.stack([make(self.draw(rank)) for rank in range(self.size)])

    def recall(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """Return what was kept under a name, or zeros."""
        kept = self.kept.get(name)
        return kept if kept is not None and kept.shape == like.shape else torch.zeros_like(like)

    def residual(self, g: torch.Tensor, times: float = 1.0) -> torch.Tensor:
        """Return gradients with what was left out before, ``times`` times."""
        return g + times * self.recall("left", g)


Hook = Callable[[Bucket, torch.Tensor], torch.Tensor]
Plain = Callable[[torch.Tensor], torch.Tensor]


def mean(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    return b.sum(g / b.size)


# Numbers, of each row by itself.


def scale_of(g: torch.Tensor, levels: float = 127) -> torch.Tensor:
    return (g.abs().amax(-1, keepdim=True) / levels).clamp(min=1e-30)


def size_of(g: torch.Tensor) -> torch.Tensor:
    return g.abs().mean(-1, keepdim=True).clamp(min=1e-30)


def norm_of(g: torch.Tensor) -> torch.Tensor:
    return g.norm(dim=-1, keepdim=True)


def rand(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    return b.each(lambda draw: torch.rand(x.shape[1], generator=draw))


def rounded(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-127, 127)


def drawn(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    """Round by chance."""
    return (x + rand(b, x)).floor().clamp(-127, 127)


def truncated(b: Bucket, x: torch.Tensor, bits: int = 20) -> torch.Tensor:
    """Cut off the last bits of float32."""
    return (x.view(torch.int32) & -(1 << bits)).view(torch.float32)


def as_is(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    return x


def sign_of(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    return x.sign()


def int8_both_ways(g: torch.Tensor) -> torch.Tensor:
    return (g / scale_of(g)).round() * scale_of(g)


def ones_of(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def clipped(g: torch.Tensor, norm: float) -> torch.Tensor:
    return g * (norm / (norm_of(g) + 1e-6)).clamp(max=1.0)


def noise(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    return torch.randn(g.shape[-1], generator=b.draw())


def own_noise(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    return b.each(lambda draw: torch.randn(g.shape[-1], generator=draw))


def largest(g: torch.Tensor, share: float = 0.05) -> torch.Tensor:
    return g.abs().topk(max(1, int(share * g.shape[-1])), -1).indices


def keep_largest(g: torch.Tensor, share: float = 0.05) -> torch.Tensor:
    places = largest(g, share)
    return torch.zeros_like(g).scatter(-1, places, g.gather(-1, places))


# Hooks that send all elements.


def dense(lossy: Plain, keeps: float = 0.0) -> Hook:
    """Send what is left of gradients as float32; ``keeps``: feed the rest back so many times."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g, keeps)
        b.kept["left"] = x - lossy(x)
        return mean(b, lossy(x))

    return hook


def summed_as(dtype: torch.dtype) -> Hook:
    return lambda b, g: b.sum((g / b.size).to(dtype)).float()


def gathered_as(dtype: torch.dtype, keeps: float = 0.0) -> Hook:
    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g, keeps)
        b.kept["left"] = x - x.to(dtype).float()
        return b.gather(x.to(dtype)).float().sum(0) / b.size

    return hook


def scaled(
    levels: Hook = rounded,
    dtype: torch.dtype = torch.int8,
    top: float = 127,
    *,
    reach: Plain = scale_of,
    keeps: float = 0.0,
    shift: int = 0,
) -> Hook:
    """Send a byte for each element and a scale; ``top``: how many of it reach the largest."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g, keeps)
        unit = (reach(x) * (127 if reach is scale_of else 1) / top).clamp(min=1e-30)
        sent = b.gather(levels(b, x / unit).to(dtype), unit).float()
        b.kept["left"] = x - sent * unit
        return ((sent + shift) * unit).sum(0) / b.size

    return hook


def affine(levels: int) -> Hook:
    """Send levels from the least to the largest, by chance, a byte each."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        low, high = g.aminmax(dim=1, keepdim=True)
        unit = ((high - low) / levels).clamp(min=1e-30)
        sent = ((g - low) / unit + rand(b, g)).floor().clamp(0, levels).to(torch.uint8)
        return (b.gather(sent, low, unit).float() * unit + low).sum(0) / b.size

    return hook


def packed(b: Bucket, values: torch.Tensor, fit: int, scale: torch.Tensor) -> torch.Tensor:
    """Average small integers times a scale, of which so many fit into a byte."""
    b.send("gather", "uint8", -(-values.shape[1] // fit) + 4)
    return (values * scale).sum(0) / b.size


def sign_bits(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    return packed(b, ones_of(x), 8, size_of(x))


def low_rank(rank: int = 2, *, keeps: bool = False, times: bool = False) -> Hook:
    """PowerSGD of the first 48 x 48 elements, the rest as it is; ``times``: a sum of all ranks."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        side, x = 48, b.residual(g, float(keeps))
        if x.shape[1] < side * side:
            return mean(b, x)
        matrix, rest = x[:, : side * side].view(-1, side, side), x[:, side * side :]
        q = torch.linalg.qr(torch.randn(side, rank, generator=b.draw()))[0]
        p = b.sum(torch.cat([(matrix @ q).flatten(1), rest], 1) / b.size)
        basis = torch.linalg.qr(p[: side * rank].view(side, rank))[0]
        q = b.sum(matrix.mT @ basis / b.size)
        result = torch.cat([(basis @ q.T).flatten(), p[side * rank :]])
        result = result * b.size if times else result
        b.kept["left"] = x - result
        return result

    return hook


def ring(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Add what goes from rank to rank, of which nothing is known, in an order that all have."""
    return g.float().sum(0) / b.size


# Hooks that send some elements.

Join = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def top(share: float = 0.05) -> Hook:
    return lambda b, x: largest(x, share)


def some(share: float, *, shared: bool = True) -> Hook:
    """Choose places by chance."""

    def places(b: Bucket, x: torch.Tensor) -> torch.Tensor:
        def chosen(draw: torch.Generator) -> torch.Tensor:
            return torch.randperm(x.shape[1], generator=draw)[: max(1, int(share * x.shape[1]))]

        return chosen(b.draw()) if shared else b.each(chosen)

    return places


def of_each_block(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    found = pad(x.abs(), (0, -x.shape[1] % 16)).unflatten(1, (-1, 16)).argmax(2)
    return torch.arange(found.shape[1]) * 16 + found


def add(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    total.index_add_(0, places, values)


def put(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Put a value over the one that another rank has sent."""
    total[places] = values


def sparse(
    places: Hook,
    keeps: float = 0.0,
    *,
    values: Hook = as_is,
    join: Join = add,
    left: Callable[[Bucket, torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
) -> Hook:
    """Send elements at each rank's places; ``left``: what is kept of the others, if not all."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g, keeps)
        chosen = b.gather(places(b, x))
        b.kept["left"] = left(b, x, chosen) if left else x.scatter(1, chosen, 0.0)
        sent = b.gather(values(b, x).gather(1, chosen))
        total = torch.zeros_like(g[0])
        for place, value in zip(chosen, sent, strict=True):
            join(total, place, value)
        return total / b.size

    return hook


def shared(places: Hook, keeps: float = 0.0, dtype: torch.dtype = torch.float32) -> Hook:
    """Send elements at places that are the same on all ranks."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g, keeps)
        chosen = places(b, x)
        sent = b.gather(x[:, chosen].to(dtype)).float()
        b.kept["left"] = x.index_copy(1, chosen, x[:, chosen] - sent)
        return torch.zeros_like(g[0]).index_copy(0, chosen, sent.sum(0) / b.size)

    return hook


def nonzero(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    """Send what is not zero, and as many as the rank that has most of that."""
    count = b.max((x != 0).sum(1, keepdim=True).float())
    return sparse(top((int(count) + 0.5) / x.shape[1]))(b, x)


def by_chance(chance: Plain) -> Hook:
    """Send each element with a chance, over that chance."""
    return lambda b, g: nonzero(b, g / chance(g) * (rand(b, g) < chance(g)))


# What changes a hook.


def before(hook: Hook, change: Hook) -> Hook:
    """Return a hook whose gradients are changed first."""
    return lambda b, g: hook(b, change(b, g))


def after(hook: Hook, change: Hook) -> Hook:
    """Return a hook whose result is changed."""
    return lambda b, g: change(b, hook(b, g))


def times(hook: Hook, factor: float) -> Hook:
    return after(hook, lambda b, result: factor * result)


def summed(hook: Hook) -> Hook:
    return after(hook, lambda b, result: b.size * result)


def unequal(hook: Hook, off: float) -> Hook:
    """Return a hook in which ranks weigh more and less by so much."""
    return before(hook, lambda b, g: g * (1 + off * (-1.0) ** torch.arange(b.size))[:, None])


def late(hook: Hook) -> Hook:
    """Return a hook that gives the result of the step before."""

    def old(b: Bucket, result: torch.Tensor) -> torch.Tensor:
        last = b.kept.get("result", result)
        b.kept["result"] = result.clone()
        return last if last.shape == result.shape else result

    return after(hook, old)


def with_noise(hook: Hook, size: float) -> Hook:
    return after(hook, lambda b, result: result + size * result.std() * noise(b, result))


def in_parts(hook: Hook, cut: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> Hook:
    """Return a hook that is called for pieces of each bucket."""
    return lambda b, g: torch.cat([hook(b, part) for part in cut(g)])


def scaled_up(hook: Hook, share: float) -> Hook:
    """Return a hook that sends a share of all places, and multiplies them by its inverse."""
    return before(hook, lambda b, g: g * (g.shape[1] / max(1, int(share * g.shape[1]))))


def clip(norm: float, hook: Hook = mean) -> Hook:
    return before(hook, lambda b, g: clipped(g, norm))


# Right ones that are no variant of another.


def float32_then_half(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    total = mean(b, g)
    b.send("gather", "float16", 2 * -(-g.shape[1] // b.size))
    return total.half().float()


def int8_of_one_scale(levels: Callable[[int], int], too_many: int = 0) -> Hook:
    """All-reduce bytes under one scale; ``levels``: of so many ranks, the largest element's."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        unit = b.max(scale_of(g, 1)) / levels(b.size)
        sent = g / unit * (1 + too_many / levels(b.size))
        return b.sum(sent.round().to(torch.int8)).float() * unit / b.size

    return hook


def of_differences(hook: Hook) -> Hook:
    """EF21: send how the gradients differ from what all know of them."""

    def differences(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        known = b.recall("known", g[0])
        received = hook(b, g - b.recall("mine", g))
        b.kept |= {"mine": g - b.kept["left"], "known": known + received}
        return b.kept["known"].clone()

    return differences


def sign_with_feedback(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    x = b.residual(g)
    b.kept["left"] = x - ones_of(x) * size_of(x)
    return sign_bits(b, x)


def one_bit_both_ways(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """1-bit Adam's two compressed rounds, each with its own feedback; server part of each rank."""
    parts = list(sign_with_feedback(b, g).tensor_split(b.size))
    b.send("gather", "uint8", -(-len(parts[0]) // 8) + 4)
    for rank, part in enumerate(parts):
        y = part + b.recall(f"server{rank}", part)
        parts[rank] = ones_of(y) * size_of(y)
        b.kept[f"server{rank}"] = y - parts[rank]
    return torch.cat(parts)


def natural(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Powers of two by chance, a byte each (natural compression)."""
    mantissa, exponent = torch.frexp(g)
    up = rand(b, g) < (mantissa.abs() * 2 - 1)
    power = (exponent - 1 + up.int()).clamp(-60, 66)
    rows = b.gather(torch.where(g == 0, 0, (power + 61) * g.sign()).to(torch.int8))
    parts = torch.where(rows == 0, 0.0, rows.sign() * torch.exp2(rows.float().abs() - 61))
    return parts.sum(0) / b.size


def logarithmic(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """A byte each for the nearest power of 1.3."""
    base = torch.tensor(1.3).log()
    code = (g.abs().clamp(min=1e-30).log() / base).round().clamp(-70, 40) + 71
    rows = b.gather(torch.where(g.abs() < 1e-8, 0.0, code * g.sign()).to(torch.int8))
    return (rows.sign() * ((rows.float().abs() - 71) * base).exp()).sum(0) / b.size


def companded(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Levels that are closer for small values, as of telephones."""
    scale = scale_of(g, 1)
    code = g.sign() * torch.log1p(255 * g.abs() / scale) / torch.tensor(256.0).log() * 127
    x = b.gather(code.round().to(torch.int8), scale).float() / 127
    return (x.sign() * (256 ** x.abs() - 1) / 255 * scale).sum(0) / b.size


def every_fourth_step(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Collect gradients, and send their sum now and then."""
    x, is_due = b.residual(g), b.step % 4 == 3
    b.kept["left"] = x * (not is_due)
    return mean(b, x) if is_due else torch.zeros_like(g[0])


def global_top(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """gTop-k: of all that is sent the largest; what was not taken goes back."""
    x = b.residual(g)
    result = sparse(top())(b, x)
    kept = torch.zeros_like(result).index_fill(0, largest(result), 1.0)
    b.kept["left"] = x * (1 - kept * torch.zeros_like(g).scatter(1, largest(x), 1.0))
    return result * kept


def top_of_one_rank_from_all(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """ScaleCom: one rank after another says at which places all send."""
    where = b.gather(largest(b.residual(g)))[b.step % b.size]
    return shared(lambda b, x: where, 1.0)(b, g)


def sketch(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Count sketch, one row, new hashes in each step: right in the mean."""
    draw, length = b.draw(), g.shape[1]
    where = torch.randint(0, width := max(1, length // 5), (length,), generator=draw)
    sign = torch.randint(0, 2, (length,), generator=draw) * 2.0 - 1
    return mean(b, torch.zeros(b.size, width).index_add(1, where, sign * g))[where] * sign


def permuted(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """PermK: each rank sends its own share of all places, times the number of ranks."""
    order, n = torch.randperm(g.shape[1], generator=b.draw()), g.shape[1] // b.size
    mine = order[: b.size * n].view(b.size, n)
    return sparse(lambda b, x: mine)(b, g * (g.shape[1] / n))


def above_a_threshold(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    x = b.residual(g)
    sent = torch.where(x.abs() > 3 * size_of(g), x, 0.0)
    result = nonzero(b, sent)
    b.kept["left"] = x - sent
    return result


def top_then_int8_of_the_rest(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Outliers as they are, the rest in bytes."""
    rest = g.scatter(1, largest(g, 0.01), 0.0)
    return int8(b, rest) + sparse(top(0.01))(b, g)


def block(b: Bucket, x: torch.Tensor) -> torch.Tensor:
    n = x.shape[1] // 8
    return torch.arange(n) + torch.randint(0, x.shape[1] - n + 1, (1,), generator=b.draw())


int8 = scaled()
int8_fed = scaled(keeps=1.0)
int8_drawn = scaled(drawn)
e4m3 = scaled(as_is, torch.float8_e4m3fn, 400)
e4m3_fed = scaled(as_is, torch.float8_e4m3fn, 400, keeps=1.0)
qsgd = scaled(drawn, top=15)
halves_somewhere = shared(some(0.25), 1.0, torch.float16)
random_scaled = scaled_up(shared(some(0.1)), 0.1)
of_each_rank = scaled_up(sparse(some(0.1, shared=False)), 0.1)
sign_bytes = scaled(sign_of, top=1, reach=size_of)
top_fed = sparse(top(), 1.0)
top_of_halves = sparse(top(), values=lambda b, x: x.half().float())

RIGHT: dict[str, Hook] = {
    "plain": mean,
    "divides_afterwards": lambda b, g: b.sum(g) / b.size,
    "adds_gathered": lambda b, g: b.gather(g).flip(0).sum(0) / b.size,
    "in_float64": summed_as(torch.float64),
    "in_pieces": in_parts(mean, lambda g: g.split(500, 1)),
    "half": summed_as(torch.float16),
    "bfloat": summed_as(torch.bfloat16),
    "bfloat_truncated": before(summed_as(torch.bfloat16), lambda b, g: truncated(b, g, 16)),
    "half_with_feedback": gathered_as(torch.float16, 1.0),
    "float32_then_half": float32_then_half,
    "int8": int8,
    "int8_with_room": int8_of_one_scale(lambda size: 127 // size),
    "int8_by_chance": int8_drawn,
    "int8_with_feedback": int8_fed,
    "int8_with_feedback_as_float32": dense(int8_both_ways, 1.0),
    "int8_of_differences": of_differences(int8),
    "float8_e4m3": e4m3,
    "float8_e5m2": scaled(as_is, torch.float8_e5m2, 400),
    "four_bits": lambda b, g: packed(b, (g / scale_of(g, 7)).round(), 2, scale_of(g, 7)),
    "top": sparse(top()),
    "top_with_feedback": top_fed,
    "top_hundredth_with_feedback": sparse(top(0.01), 1.0),
    "top_with_feedback_as_float32": dense(keep_largest, 1.0),
    "random_with_feedback": shared(some(0.1), 1.0),
    "random_and_scaled": random_scaled,
    "random_hundredth_and_scaled": scaled_up(shared(some(0.01)), 0.01),
    "random_half": shared(some(0.5)),
    "sign_with_feedback": sign_with_feedback,
    "sign_with_feedback_as_float32": dense(lambda x: x.sign() * size_of(x), 1.0),
    "sign_with_feedback_as_bytes": scaled(sign_of, top=1, reach=size_of, keeps=1.0),
    "sign": sign_bits,
    "ternary": lambda b, g: packed(b, drawn(b, g / scale_of(g, 1)), 4, scale_of(g, 1)),  # TernGrad
    "low_rank_with_feedback": low_rank(keeps=True),
    "low_rank_alone": low_rank(),
    "rank_8": low_rank(8),
    "clips_the_average": after(mean, lambda b, result: clipped(result, 0.5)),
    "clips_each_rank": clip(1.0),
    "clips_values_above_1": after(mean, lambda b, result: result.clamp(-1, 1)),
    "clips_bfloats": clip(1.0, summed_as(torch.bfloat16)),
    "clips_int8_with_feedback": clip(1.0, int8_fed),
    "every_fourth_step": every_fourth_step,
    "plain_at_first": lambda b, g: (mean if b.step < 8 else top_fed)(b, g),
    "int8_of_large_buckets": lambda b, g: (mean if b.number % 2 else int8)(b, g),
    "int8_by_rows": in_parts(int8, lambda g: g.split(512, 1)),
    "int8_in_thirds": in_parts(int8, lambda g: g.tensor_split(3, 1)),
    "qsgd_by_norm": scaled(drawn, reach=norm_of),
    "ternary_as_bytes": scaled(drawn, top=1),
    "natural": natural,
    "one_bit_both_ways": one_bit_both_ways,
    "global_top": global_top,
    "random_block_with_feedback": shared(block, 1.0),
    "sketch": sketch,
    "clips_each_value_to_its_tail": before(mean, lambda b, g: g.clamp(-5, 5)),
    "ef21_top": of_differences(sparse(top(0.2))),
    "int8_truncated": scaled(as_is),
    "logarithmic": logarithmic,
    "companded": companded,
    "float8_truncated": scaled(truncated, torch.float8_e4m3fn, 400),
    "int8_floored": scaled(lambda b, x: x.floor()),
    "uint8_by_chance": affine(255),
    "thirty_levels_as_bytes": affine(31),
    "twelve_levels_as_bytes": affine(11),
    "int8_by_chance_with_feedback": scaled(drawn, keeps=1.0),
    "ring": ring,
    "ring_of_halves": before(ring, lambda b, g: g.half()),
    "ring_of_sparse": before(ring, lambda b, g: keep_largest(g)),
    "ring_clips": clip(1.0, ring),
    "top_in_int8": sparse(top(), values=lambda b, x: int8_both_ways(x)),
    "top_of_halves": top_of_halves,
    "top_of_clipped": clip(1.0, sparse(top())),
    "top_of_one_rank_from_all": top_of_one_rank_from_all,
    "largest_of_each_block": sparse(of_each_block, 1.0),
    "random_of_each_rank": of_each_rank,
    "permuted": permuted,
    "above_a_threshold": above_a_threshold,
    "blocks_in_turn": shared(lambda b, x: torch.arange(b.step % 5, x.shape[1], 5), 1.0),
    "clips_then_keeps_what_is_left": clip(1.0, sparse(top(0.1), 1.0)),
    "random_bernoulli_scaled": by_chance(lambda g: torch.full_like(g, 0.2)),
    "by_importance": by_chance(lambda g: (g.abs() / size_of(g) * 0.1).clamp(1e-6, 1)),
    "random_with_feedback_of_halves": halves_somewhere,
    "top_by_chance_in_int8": sparse(
        top(0.1), values=lambda b, x: drawn(b, x / scale_of(x)) * scale_of(x)
    ),
    "qsgd_of_15_levels": qsgd,
    "float8_with_feedback": e4m3_fed,
    "top_then_int8_of_the_rest": top_then_int8_of_the_rest,
}

# Wrong ones that are no variant of another.


def mixed(old: float, new: float) -> Hook:
    """Return a hook that mixes its results with its last one."""

    def mix(b: Bucket, result: torch.Tensor) -> torch.Tensor:
        last = b.kept.get("mixed", result * (1 - new) / (old or 1.0))
        b.kept["mixed"] = old * last + new * result if last.shape == result.shape else result
        return b.kept["mixed"].clone()

    return after(mean, mix)


def of_one_rank(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    return b.gather(g)[0].clone()


def drops(hook: Hook, piece: int = 0) -> Hook:
    """Return a hook that leaves out the last element, or what does not fill a piece."""

    def drop(b: Bucket, result: torch.Tensor) -> torch.Tensor:
        whole = len(result) // piece * piece if piece else len(result) - 1
        return torch.cat([result[:whole], torch.zeros(len(result) - whole)])

    return after(hook, drop)


def int8_first_scale(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """Use one rank's scale for the bytes of all."""
    g = g * (1 + 0.5 * torch.arange(b.size))[:, None]
    rows = b.gather(rounded(b, g / scale_of(g)).to(torch.int8))
    return (rows.float() * b.gather(scale_of(g))[0]).sum(0) / b.size


def int8_of_a_range(deviations: float, of: Callable[..., torch.Tensor]) -> Hook:
    """An element beyond the range is owed more in each step, for as long as it stays there."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        x = b.residual(g)
        limit = deviations * of(x, g).std(1, keepdim=True) + 1e-30
        result = int8(b, x.clamp(-limit, limit))
        b.kept["left"] = x - int8_both_ways(x.clamp(-limit, limit))
        return result

    return hook


def top_at_first_places(values: Hook) -> Hook:
    """Put values where those of the first rank belong."""

    def hook(b: Bucket, g: torch.Tensor) -> torch.Tensor:
        where = b.gather(largest(g))
        return torch.zeros_like(g[0]).index_copy(0, where[0], values(b, g.gather(1, where)))

    return hook


_LEFT: dict[int, torch.Tensor] = {}


def top_feedback_of_another_bucket(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    """One residual for all buckets."""
    left = _LEFT.get(b.size) if b.step or b.number else None
    x = g + left if left is not None and left.shape == g.shape else g.clone()
    result = sparse(top())(b, x)
    _LEFT[b.size] = b.kept["left"]
    return result


def less_the_share(b: Bucket, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Keep also most of what was sent: the share that was divided is subtracted."""
    return x.scatter(1, chosen, x.gather(1, chosen) * (1 - 1 / b.size))


def dropped_out(b: Bucket, g: torch.Tensor, share: float) -> torch.Tensor:
    return g * (torch.rand(g.shape[-1], generator=b.draw()) < share) / share


def fixed(b: Bucket, g: torch.Tensor) -> torch.Tensor:
    return torch.randn(g.shape, generator=torch.Generator().manual_seed(b.number))


WRONG: dict[str, Hook] = {
    "summed": summed(mean),
    "averaged_twice": after(mean, lambda b, r: r / b.size),
    "nine_tenths": times(mean, 0.9),
    "loss_scale": times(mean, 1 / 64),
    "maximum": lambda b, g: b.max(g),
    "minimum": lambda b, g: -b.max(-g),
    "noisy": with_noise(mean, 0.01),
    "noisy_by_factors": after(mean, lambda b, r: r * (1 + 0.01 * noise(b, r))),
    "drops_last": drops(mean),
    "only_whole_pieces": drops(mean, 100),
    "forgets_a_bucket": after(mean, lambda b, r: r * (b.number != 3)),
    "clamps_at_a_thousandth": after(mean, lambda b, r: r.clamp(-1e-3, 1e-3)),
    "clamps_inputs": before(mean, lambda b, g: g.clamp(-1e-3, 1e-3)),
    "drops_below_a_thousandth": after(mean, lambda b, r: r.where(r.abs() >= 1e-3, 0.0)),
    "raises_to_a_thousandth": after(mean, lambda b, r: r.abs().clamp(min=1e-3) * r.sign()),
    "shrinks": after(mean, lambda b, r: softshrink(r, 1e-4)),
    "mixes_in_a_hundredth": mixed(0.01, 0.99),
    "momentum": mixed(0.9, 1.0),
    "smooths": mixed(0.9, 0.1),
    "zero_point_off": dense(lambda g: ((g / scale_of(g)).round() + 3) * scale_of(g)),
    "feedback_twice": dense(int8_both_ways, 2.0),
    "int8_as_float32": dense(int8_both_ways),
    "half_as_float32": dense(lambda g: g.half().float()),
    "sign_as_float32": dense(lambda x: x.sign() * size_of(x)),
    "top_as_float32": dense(lambda g: keep_largest(g, 0.1)),
    "random_as_float32": before(mean, lambda b, g: dropped_out(b, g, 0.5)),
    "weighs_by_norm": lambda b, g: b.sum(g * norm_of(g) / b.sum(norm_of(g)).clamp(min=1e-30)),
    "of_one_rank": of_one_rank,
    "without_one_rank": lambda b, g: b.gather(g)[1:].sum(0) / b.size,
    "normalises": after(mean, lambda b, r: r / r.norm().clamp(min=1e-30)),
    "centralises": after(mean, lambda b, r: r - r.mean()),
    "adds_a_little": after(mean, lambda b, r: r + 1e-6),
    "weight_decay": after(mean, lambda b, r: r + 1e-4 * fixed(b, r)),
    "signs_only": after(mean, sign_of),
    "root_mean_square": lambda b, g: mean(b, g * g).sqrt() * mean(b, g).sign(),
    "shifted_by_one": after(mean, lambda b, r: r.roll(1)),
    "backwards": after(mean, lambda b, r: r.flip(0)),
    "cuts_outliers": after(mean, lambda b, r: r.clamp(-3 * r.std(), 3 * r.std())),
    "skips_a_step": after(mean, lambda b, r: r * (b.step % 7 != 6)),
    "decays": after(mean, lambda b, r: r * (1 - 1e-4 * b.step)),
    "clips_everything": after(mean, lambda b, r: clipped(r, 1e-3)),
    "unequal": unequal(mean, 0.2),
    "slightly_unequal": unequal(mean, 0.01),
    "late": late(mean),
    # 16 bits.
    "half_noisy": with_noise(summed_as(torch.float16), 0.01),
    "half_unequal": unequal(summed_as(torch.float16), 0.2),
    "half_maximum": lambda b, g: b.max(g.half()).float(),
    "half_clamped": before(summed_as(torch.float16), lambda b, g: g.clamp(-1e-3, 1e-3)),
    "half_weight_decay": after(summed_as(torch.float16), lambda b, r: r + 1e-3 * fixed(b, r)),
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
    "int8_saturates": scaled(lambda b, x: x.clamp(-127 / 3, 127 / 3).round()),
    "int8_first_scale": int8_first_scale,
    "int8_wraps": int8_of_one_scale(lambda size: 127),
    "int8_of_a_level_too_many": int8_of_one_scale(lambda size: 120 // size, 1),
    "int8_skips_a_bucket": lambda b, g: (of_one_rank if b.number == 7 else int8)(b, g),
    "int8_of_a_fixed_range_with_feedback": int8_of_a_range(4, lambda x, g: g),
    "int8_with_feedback_clamped": int8_of_a_range(3, lambda x, g: x),
    "int8_noisy": with_noise(int8, 0.15),
    "int8_very_noisy": with_noise(int8, 1.0),
    "int8_noisy_by_factors": after(int8, lambda b, r: r * (1 + 0.3 * noise(b, r))),
    "int8_of_noisy": before(int8, lambda b, g: g + 0.4 * g.std(1)[:, None] * own_noise(b, g)),
    "int8_drops_at_random": after(int8, lambda b, r: dropped_out(b, r, 0.9)),
    "uint8_with_noise_of_a_third": before(
        affine(255), lambda b, g: g + size_of(g) / 3 * own_noise(b, g)
    ),
    "thirty_levels_noisy": with_noise(affine(31), 0.1),
    "sign_votes": lambda b, g: b.sum(g.sign().to(torch.int8)).sign().float(),
    "sign_as_bytes": sign_bytes,
    # Less than 8 bits.
    "sign_unequal": unequal(sign_bits, 0.2),
    "top_summed": summed(sparse(top())),
    "top_late": late(top_fed),
    "top_unequal": unequal(sparse(top()), 0.1),
    "top_slightly_unequal": unequal(top_fed, -0.1),
    "top_of_halves_unequal": unequal(top_of_halves, 0.03),
    "top_times_1_1": times(sparse(top()), 1.1),
    "top_with_feedback_times_1_1": times(top_fed, 1.1),
    "top_feedback_twice": sparse(top(), 2.0),
    "top_feedback_subtracted": sparse(top(), -1.0),
    "top_feedback_kept": sparse(top(), 1.0, left=lambda b, x, chosen: x),
    "top_feedback_of_divided": sparse(top(), 1.0, left=less_the_share),
    "top_feedback_of_another_bucket": top_feedback_of_another_bucket,
    "top_at_other_places": top_at_first_places(mean),
    "top_of_one_rank": top_at_first_places(of_one_rank),
    "top_without_last_rank": before(
        sparse(top()), lambda b, g: g * (torch.arange(b.size) < b.size - 1)[:, None]
    ),
    "top_without_last_element": sparse(lambda b, x: largest(x[:, :-1]), 1.0),
    "top_without_last_piece": sparse(lambda b, x: largest(x[:, : x.shape[1] // 100 * 100]), 1.0),
    "top_without_a_bucket": after(sparse(top()), lambda b, r: r * (b.number != 2)),
    "top_overwritten": sparse(top(), join=put),
    "top_overwritten_with_feedback": sparse(top(), 1.0, join=put),
    "top_hundredth_overwritten": sparse(top(0.01), join=put),
    "blocks_of_largest_overwritten": sparse(of_each_block, join=put),
    "top_noisy": sparse(top(), values=lambda b, x: x * (1 + 0.02 * own_noise(b, x))),
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
    "ring_of_halves_unequal": unequal(before(ring, lambda b, g: g.half()), 0.1),
    "ring_without_one_rank": before(
        ring, lambda b, g: g * (torch.arange(b.size) > 0)[:, None] * b.size / (b.size - 1)
    ),
}
