"""More invented hooks: those of a second collection that were misjudged, or told of wrongly."""

from __future__ import annotations

import torch

from .invented import (
    Rank,
    Rounds,
    as_bytes,
    clipped,
    gathered_int8,
    gathered_sparse,
    largest,
    low_rank,
    mean,
    packed,
    right,
    scale_of,
    wrong,
)


def scaled_rows(rows: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    return [r[:-4].view(dtype).float() * r[-4:].clone().view(torch.float32) for r in rows]


@right
def qsgd_by_norm(me: Rank, g: torch.Tensor) -> Rounds:
    norm = g.norm().clamp(min=1e-30)
    x = g.abs() / norm * 127
    levels = (x + torch.rand(g.shape, generator=me.draw())).floor().clamp(0, 127) * g.sign()
    rows = yield "gather", as_bytes(levels.to(torch.int8), norm / 127)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


@right
def ternary_as_bytes(me: Rank, g: torch.Tensor) -> Rounds:
    scale = g.abs().max().clamp(min=1e-30)
    chosen = torch.rand(g.shape, generator=me.draw()) < g.abs() / scale
    rows = yield "gather", as_bytes((g.sign() * chosen).to(torch.int8), scale)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size


@right
def natural(me: Rank, g: torch.Tensor) -> Rounds:
    """Powers of two by chance, a byte each (natural compression)."""
    mantissa, exponent = torch.frexp(g)
    up = torch.rand(g.shape, generator=me.draw()) < (mantissa.abs() * 2 - 1)
    power = (exponent - 1 + up.int()).clamp(-60, 66)
    code = torch.where(g == 0, 0, (power + 61) * g.sign()).to(torch.int8)
    rows = yield "gather", code
    parts = [
        torch.where(r == 0, 0.0, r.sign().float() * torch.exp2(r.float().abs() - 61)) for r in rows
    ]
    return torch.stack(parts).sum(0) / me.size


@right
def one_bit_both_ways(me: Rank, g: torch.Tensor) -> Rounds:
    """1-bit Adam's two compressed rounds, each with its own feedback; server part of each rank."""
    x = me.residual(g)
    me.kept["left"] = x - signs1(x)
    average = yield from packed(me, g, x)
    mine = average.tensor_split(me.size)[me.rank]
    y = mine + me.kept.get("server", torch.zeros_like(mine)) if same(me, mine) else mine
    me.kept["server"] = y - signs1(y)
    longest = -(-len(g) // me.size)
    rows = yield (
        "gather",
        as_bytes(
            torch.nn.functional.pad((y >= 0).to(torch.uint8), (0, longest - len(y))), y.abs().mean()
        ),
    )
    lengths = [len(each) for each in average.tensor_split(me.size)]
    return torch.cat(
        [
            (row[:n].float() * 2 - 1) * row[-4:].clone().view(torch.float32)
            for row, n in zip(rows, lengths, strict=True)
        ]
    )


def same(me: Rank, part: torch.Tensor) -> bool:
    return "server" in me.kept and me.kept["server"].shape == part.shape


def signs1(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= 0, 1.0, -1.0) * x.abs().mean()


@right
def global_top(me: Rank, g: torch.Tensor) -> Rounds:
    """gTop-k: of all that is sent the largest; what was not taken goes back."""
    x = me.residual(g)
    places = largest(x)
    result = yield from gathered_sparse(me, x, places)
    taken = largest(result)
    kept = torch.zeros_like(g).index_fill(0, taken, 1.0)
    mine = torch.zeros_like(g).index_fill(0, places, 1.0)
    me.kept["left"] = x * (1 - kept * mine)
    return result * kept


@right
def random_block_with_feedback(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    n = len(g) // 8
    start = int(torch.randint(0, len(g) - n + 1, (1,), generator=me.draw(shared=True)))
    x_sent = x[start : start + n]
    left = x.clone()
    left[start : start + n] = 0
    me.kept["left"] = left
    total = yield "sum", x_sent / me.size
    out = torch.zeros_like(g)
    out[start : start + n] = total
    return out


@right
def sketch(me: Rank, g: torch.Tensor) -> Rounds:
    """Count sketch, one row, new hashes in each step: right in the mean."""
    draw = me.draw(shared=True)
    width = max(1, len(g) // 5)
    where = torch.randint(0, width, (len(g),), generator=draw)
    sign = torch.randint(0, 2, (len(g),), generator=draw) * 2.0 - 1
    table = torch.zeros(width).index_add(0, where, sign * g)
    total = yield "sum", table / me.size
    return total[where] * sign


@right
def clips_each_value_to_its_tail(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from mean(me, g.clamp(-5, 5)))


@right
def ef21_top(me: Rank, g: torch.Tensor) -> Rounds:
    """Sends the largest differences from what all know."""
    mine = me.kept.get("mine")
    known = me.kept.get("known")
    if mine is None or known is None or mine.shape != g.shape:
        mine = known = torch.zeros_like(g)
    change = g - mine
    places = largest(change, 0.2)
    me.kept["mine"] = mine.index_add(0, places, change[places])
    known = known + (yield from gathered_sparse(me, change, places))
    me.kept["known"] = known
    return known.clone()


@wrong
def weight_decay(me: Rank, g: torch.Tensor) -> Rounds:
    weights = torch.randn(g.shape, generator=torch.Generator().manual_seed(me.bucket))
    return (yield from mean(me, g)) + 1e-4 * weights


@wrong
def int8_zero_point_off_by_one(me: Rank, g: torch.Tensor) -> Rounds:
    return (yield from gathered_int8(me, g, 1))


@wrong
def int8_wraps(me: Rank, g: torch.Tensor) -> Rounds:
    """No room for the sum: bytes wrap around."""
    top = (yield "max", g.abs().max()[None]).clamp(min=1e-30)
    scale = top / 127
    total = yield "sum", (g / scale).round().to(torch.int8)
    return total.float() * scale / me.size


@wrong
def int8_skips_a_bucket(me: Rank, g: torch.Tensor) -> Rounds:
    if me.bucket == 7:
        return (yield "gather", g)[0].clone()
    return (yield from gathered_int8(me, g))


@wrong
def top_feedback_of_divided(me: Rank, g: torch.Tensor) -> Rounds:
    """Keeps also most of what was sent, since it subtracts the share that was divided."""
    x = me.residual(g)
    places = largest(x)
    left = x.clone()
    left[places] -= x[places] / me.size
    me.kept["left"] = left
    return (yield from gathered_sparse(me, x, places))


_SHARED: dict[tuple[int, int], torch.Tensor] = {}


@wrong
def top_feedback_of_another_bucket(me: Rank, g: torch.Tensor) -> Rounds:
    """One residual for all buckets."""
    left = _SHARED.get((me.size, me.rank)) if me.step or me.bucket else None
    x = g + left if left is not None and left.shape == g.shape else g.clone()
    places = largest(x)
    _SHARED[me.size, me.rank] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@wrong
def top_slightly_unequal(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g * (1.1 if me.rank % 2 else 0.9))
    places = largest(x)
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@wrong
def top_without_last_element(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    places = largest(x[:-1])
    me.kept["left"] = x.index_fill(0, places, 0.0)
    return (yield from gathered_sparse(me, x, places))


@wrong
def top_without_a_bucket(me: Rank, g: torch.Tensor) -> Rounds:
    result = yield from gathered_sparse(me, g, largest(g))
    return result * (me.bucket != 2)


@wrong
def low_rank_feedback_summed(me: Rank, g: torch.Tensor) -> Rounds:
    x = me.residual(g)
    result = me.size * (yield from low_rank(me, g, x))
    me.kept["left"] = x - result
    return result


@wrong
def clips_everything(me: Rank, g: torch.Tensor) -> Rounds:
    return clipped((yield from mean(me, g)), 1e-3)


@right
def int8_truncated(me: Rank, g: torch.Tensor) -> Rounds:
    """Rounds toward zero, which loses what 8 bits may."""
    scale = scale_of(g)
    rows = yield "gather", as_bytes((g / scale).to(torch.int8), scale)
    return torch.stack(scaled_rows(rows, torch.int8)).sum(0) / me.size
