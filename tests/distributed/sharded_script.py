"""Training scripts of sharded models that know nothing of hooktrace: ``sharded_script.py OUT HOW``.

Under torchrun it is one rank.  HOW, once or several times, is the name of a function here, which
yields the models that it trains; the same processes train all.  Rank 0 writes the bits of the last
parameters of each into OUT/HOW.  With ``exits`` among them all ranks end with code 7.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

OUT, HOWS = Path(sys.argv[1]).resolve(), sys.argv[2:]
WIDTH = 40


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


class Loss(nn.Module):
    """A model and what it is trained for, as trainers wrap models."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).square().mean()


def sharded(*, root: bool = True) -> Any:
    """Return a model whose layers are sharded, and it too."""
    net = Net()
    for layer in net.layers:
        fully_shard(layer)
    return fully_shard(net) if root else net


def train(model: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor], steps: int = 6) -> None:
    """Evaluate first, as trainers do, and then train."""
    with torch.no_grad():
        loss(torch.randn(4, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(torch.randn(4, WIDTH)).backward()
        optimizer.step()


def exits() -> Iterator[nn.Module]:
    """Train two models by turns, one inside a wrapper, then one whose root is not sharded."""
    first, second = sharded(), Loss(sharded())
    yield first
    yield second
    for _ in range(3):
        train(first, lambda x: first(x).square().mean(), 2)
        train(second, second, 2)
    bare = sharded(root=False)
    yield bare
    train(bare, lambda x: bare(x).square().mean())


def compiles() -> Iterator[nn.Module]:
    """Train a model that is compiled as a whole."""
    net = sharded()
    yield net
    net.compile(backend="aot_eager")  # for which no compiler is started
    train(net, Loss(net))


def main(how: str) -> None:
    torch.manual_seed(0)
    models = list(globals()[how]())
    if dist.get_rank() == 0:
        found = [p.detach() for model in models for p in model.parameters()]
        local = [p.to_local() if hasattr(p, "to_local") else p for p in found]
        OUT.mkdir(exist_ok=True)
        (OUT / how).write_bytes(torch.cat([p.flatten() for p in local]).numpy().tobytes())
    dist.barrier()
    del models
    gc.collect()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for how in HOWS:
        main(how)
    dist.destroy_process_group()
    if "exits" in HOWS:
        sys.exit(7)
