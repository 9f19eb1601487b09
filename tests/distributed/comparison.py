"""hooktrace's hooks beside torch's and beside formulas: what the parity scenarios share.

    gradients chosen by (rank, step) --> a DDP model with hooktrace's hook --> .grad, state --+
                                     --> one with torch's, or a formula --> expected ---------+
                                                                  differences / tolerance <---+

Gradients are given to the model (``Given``): both sides start from the same bits, and every rank
can work out every other rank's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Hook = Callable[..., Any]
Gradients = list[torch.Tensor]

# Pairs of one shape that share a bucket, vectors, a convolution, a thin matrix, one that is large
# enough for matrix-vector products (128 x 128), and one that no rank compresses (2 x 2).
SHAPES: tuple[tuple[int, ...], ...] = (
    *((24, 24), (24,), (24, 24), (24, 24), (24,), (24, 24)),
    *((16, 16), (16,), (16, 16), (16, 16), (5,), (16, 16)),
    *((8, 4, 3, 3), (8,), (12, 40), (30, 3), (2, 2), (128, 128)),
)
CAP_BYTES = 2400
"""A bucket takes two of the 24 x 24 matrices in float32."""


class Given(nn.Module):
    """A model whose gradients are what it is called with."""

    def __init__(
        self, shapes: Sequence[tuple[int, ...]] = SHAPES, dtypes: Sequence[torch.dtype] = ()
    ) -> None:
        super().__init__()
        dtypes = dtypes or [torch.float32] * len(shapes)
        self.values = nn.ParameterList(
            nn.Parameter(torch.zeros(s, dtype=d)) for s, d in zip(shapes, dtypes, strict=True)
        )

    def forward(self, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return a loss with these gradients; ``None`` leaves a parameter unused."""
        pairs = zip(self.values, gradients, strict=True)
        return torch.stack([(v * g).sum().float() for v, g in pairs if g is not None]).sum()


def drawn(
    rank: int,
    step: int,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtypes: Sequence[torch.dtype] = (),
) -> Gradients:
    """Return the gradients of one rank and step: a part that all ranks and steps share, and noise.

    Full rank and well conditioned, so that rounding is not blown up by the orthogonalisation.
    """
    dtypes = dtypes or [torch.float32] * len(shapes)
    shared = torch.Generator().manual_seed(7)
    own = torch.Generator().manual_seed(1_000_003 * (rank + 1) + step)
    return [
        (torch.randn(s, generator=shared) + torch.randn(s, generator=own)).to(d)
        for s, d in zip(shapes, dtypes, strict=True)
    ]


class Run:
    """One DDP model with one hook; ``buckets``: how many the last step had."""

    def __init__(
        self, hook: Hook, state: Any = None, *, module: nn.Module | None = None, **options: Any
    ) -> None:
        module = module or Given()
        itemsize = min(p.element_size() for p in module.parameters())
        options.setdefault("bucket_cap_mb", CAP_BYTES / 4 * itemsize / 2**20)
        self.buckets = 0
        self.ddp = DistributedDataParallel(module, **options)

        def counted(state, bucket):  # DDP refuses annotations that are strings
            self.buckets = bucket.index() + 1
            return hook(state, bucket)

        self.ddp.register_comm_hook(state, counted)

    def step(self, gradients: Sequence[torch.Tensor | None]) -> Gradients:
        """Run one backward pass with these gradients; return what ends in ``.grad``."""
        self.ddp.zero_grad()
        self.ddp(gradients).backward()
        return self.averaged()

    def averaged(self) -> Gradients:
        """Return copies of the gradients, zeros where there is none."""
        return [
            torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.ddp.parameters()
        ]


def serialised(hook: Hook) -> Hook:
    """Return torch's multi-round hook in the form that works on gloo: one bucket at a time."""

    def waited(state, bucket):  # DDP refuses annotations that are strings
        value = hook(state, bucket).wait()
        future = torch.futures.Future()
        future.set_result(value)
        return future

    return waited


def difference(
    ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], scale: float | None = None
) -> float:
    """Return the largest difference over the largest number, or over ``scale``; inf for NaN."""
    if [t.numel() for t in ours] != [t.numel() for t in theirs]:
        return float("inf")
    if not theirs:
        return 0.0
    mine = torch.cat([t.flatten().double() for t in ours])
    other = torch.cat([t.flatten().double() for t in theirs])
    if not mine.isfinite().all():
        return float("inf")
    return (mine - other).abs().max().item() / (scale or largest(theirs) or 1.0)


def largest(tensors: Sequence[torch.Tensor]) -> float:
    return max((t.abs().max().item() for t in tensors if t.numel()), default=0.0)


def equal(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors and dtypes are the same to the bit."""
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def tolerance(dtype: torch.dtype, steps: int = 1) -> float:
    """Return the difference that rounding may make, relative to the largest number of its kind.

    A division, a seed or a residual that is forgotten in a hook is ten times over it, and more.

    One step: P and Q are sums of up to 128 products, whose rounding errors add up to sqrt(128) eps
    at random and 128 eps at worst; orthogonalisation magnifies them by P's condition, which is
    about 4 for these gradients.  float32: 32 eps; seen are 5.  16-bit products are summed in
    float32 and rounded once, and a few more times by Gram-Schmidt: 4 eps; seen is 1.

    Many steps, each side on its own: a step's error comes back in the next one's residual and Q, so
    that the errors add up.  Error feedback with warm start magnifies them, where it turns from one
    direction to another of nearly the same size: eightfold is allowed, twofold is seen.
    """
    each = 32 if dtype is torch.float32 else 4
    magnified = 1 if steps == 1 else 8
    return float(each * torch.finfo(dtype).eps * steps * magnified)
