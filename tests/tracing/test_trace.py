"""What ``trace`` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks, instrument, trace
from hooktrace.tracing.trace import ddp_of

pytestmark = pytest.mark.usefixtures("alone")


class Holder(nn.Module):
    """Keeps a module under some name, as wrappers do."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__()
        self.add_module(name, module)


def test_the_model_is_found_in_what_people_hold() -> None:
    """As it is, compiled, in Fabric's module, in both."""
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    compiled, fabric = Holder("_orig_mod", ddp), Holder("_forward_module", ddp)
    for held in (ddp, compiled, fabric, Holder("_forward_module", compiled)):
        assert ddp_of(held) is ddp


def made(name: str, *bases: type) -> Any:
    """Return an object of a class of this name."""
    found: type = type(name, bases, {})
    return found()


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Linear(1, 1), r"a Linear: wrap it first: instrument\(DistributedData"),
    (lambda: nn.DataParallel(nn.Linear(1, 1)), "a DataParallel: it sends no gradients between"),
    (
        lambda: made("FullyShardedDataParallel", nn.Module),
        "FSDP1 calls no DDP hook.*fully_shard and use",
    ),
    (lambda: made("Sharded", type("FSDPModule", (), {}), nn.Identity), r"fsdp.trace\(model\)"),
    (lambda: nn.Sequential(made("A", type("FSDPModule", (), {}), nn.Identity)), "fsdp.trace"),
    (lambda: made("Net", type("LightningModule", (nn.Module,), {})), "lightning.Trace"),
    (lambda: made("Trainer"), r"transformers.trace\(trainer, hook\)"),
    (lambda: Holder("_orig_mod", nn.Linear(1, 1)), "a Holder, which holds a Linear: wrap it first"),
    (
        lambda: made("DDPNet", type("DDP", (), {}), nn.Identity),
        r"replicate\(\) makes a DDP model late",
    ),
    (lambda: 3, "a int: pass a torch.nn.parallel.DistributedDataParallel model"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_other_models_are_refused(make: Callable[[], Any], why: str) -> None:
    """With what to do in their place; so is a call in place of the hook itself."""
    with pytest.raises(TypeError, match=why):
        instrument(make(), hooks.allreduce_hook)
    with pytest.raises(TypeError, match="cannot trace a NoneType; pass the hook itself"):
        trace(None)  # type: ignore[arg-type]
