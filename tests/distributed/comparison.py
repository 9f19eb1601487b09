"""hooktrace's hooks beside torch's and beside formulas: what the parity scenarios share.

    gradients chosen by (rank, step) --> DDP model with hooktrace's hook --> .grad, state --+
                                     --> DDP model with torch's, a formula --> expected ----+
                                                                  differences / tolerance <-+

The model's gradients are given to it (``Given``), so both sides start from the same bits, every
rank can work out every other rank's gradients, and a run of 30 steps costs communication only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooktrace.staging.hook import composed, steps_of

Hook = Callable[..., Any]
Gradients = list[torch.Tensor]
Formula = Callable[[int, list[torch.Tensor]], torch.Tensor]

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


@dataclass
class Call:
    """What a hook was given for one bucket, and what it gave back."""

    parameters: list[torch.Tensor]
    gradients: torch.Tensor
    result: torch.Tensor | None = None


class Run:
    """One DDP model with one hook; ``log`` has each step's calls by bucket index."""

    def __init__(
        self, hook: Hook, state: Any = None, *, module: nn.Module | None = None, **options: Any
    ) -> None:
        module = module or Given()
        itemsize = min(p.element_size() for p in module.parameters())
        options.setdefault("bucket_cap_mb", CAP_BYTES / 4 * itemsize / 2**20)
        self.state = state
        self.log: list[dict[int, Call]] = []
        self.ddp = DistributedDataParallel(module, **options)
        self.ddp.register_comm_hook(state, _recorded(hook, self.log))

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

    def expected(self, formula: Formula, step: int = -1) -> Gradients:
        """Return the gradients that ``formula`` gives for what all ranks' hooks were given.

        Collective.  ``formula``: of a bucket's index and its gradients on each rank.
        """
        means: dict[int, torch.Tensor] = {}
        for index, gathered in self._of_all_ranks(step).items():
            parameters = self.log[step][index].parameters
            parts = formula(index, gathered).split([p.numel() for p in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                means[id(parameter)] = part.view(parameter.shape)
        return [means[id(p)] for p in self.ddp.parameters()]

    def results_are(self, formula: Formula, step: int) -> bool:
        """Return whether the hook's results in a step are the formula's to the bit.  Collective."""
        calls = self.log[step]
        return all(
            equal([calls[index].result], [formula(index, gathered)])
            for index, gathered in self._of_all_ranks(step).items()
        )

    def _of_all_ranks(self, step: int) -> dict[int, list[torch.Tensor]]:
        """Return each bucket's gradients on each rank, by its index."""
        calls = sorted(self.log[step].items())
        sent = torch.cat([call.gradients.view(torch.uint8) for _, call in calls])
        rows = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, sent)
        parts = [row.split([call.gradients.nbytes for _, call in calls]) for row in rows]
        return {
            index: [part[i].clone().view(call.gradients.dtype) for part in parts]
            for i, (index, call) in enumerate(calls)
        }


def _recorded(hook: Hook, log: list[dict[int, Call]]) -> Hook:
    """Return the hook, keeping what it is given and what it returns."""

    def steps(state: Any, bucket: Any) -> Iterator[Any]:
        if bucket.index() == 0:
            log.append({})
        call = log[-1][bucket.index()] = Call(bucket.parameters(), bucket.buffer().clone())
        result = yield from steps_of(hook, state, bucket)
        call.result = result.clone()
        return result

    return around(steps, hook)


def around(steps: Any, hook: Hook) -> Hook:
    """Return a hook of these steps in place of the hook's own, with as many rounds."""
    return composed(steps, hook, name="around", made_by=(around, (steps, hook)))


def serialised(hook: Hook) -> Hook:
    """Return torch's multi-round hook in the form that works on gloo: one bucket at a time."""

    def waited(state, bucket):  # DDP refuses annotations that are strings
        value = hook(state, bucket).wait()
        future = torch.futures.Future()
        future.set_result(value)
        return future

    return waited


def renamed(hook: Hook) -> Hook:
    """Return torch's hook under a name that DDP does not refuse on gloo."""

    def called(state, bucket):  # DDP refuses annotations that are strings
        return hook(state, bucket)

    return called


def require_buckets(*runs: Run, least: int = 6) -> None:
    """Raise unless the last step had that many buckets."""
    counts = [len(run.log[-1]) for run in runs]
    if min(counts) < least:
        raise AssertionError(f"{counts} buckets, and the comparison wants {least}")


# --- differences ----------------------------------------------------------------------------------


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
    if not other.numel():
        return 0.0
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
