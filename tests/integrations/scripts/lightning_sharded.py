"""FSDP2 through Lightning: ``lightning_sharded.py FILE HOW ...`` writes what it trained.

HOW, one after another: ``plainly``, which knows of Lightning alone and is what is written, or
``by-hand``, with a hook of hooktrace's; by the Trainer first, then by Fabric.
"""

import gc
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import lightning
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy as FabricStrategy
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
FILE, HOWS = Path(sys.argv[1]).resolve(), sys.argv[2:]
facts: dict[str, object] = {}


def shard(net, mesh):
    """Shard each layer and the model over the ranks."""
    for layer in net:
        fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(net, mesh=mesh["data_parallel"])


def trace(model, name):
    """Trace a model by hand."""
    import hooktrace

    hook = hooktrace.fsdp.hooks.bf16_reduce_scatter()
    hooktrace.fsdp.trace(model, name=name, reduce_scatter=hook)


def refused(trainer, module):
    """Return why the callback for DDP does not take a trainer."""
    from hooktrace.integrations.lightning import Trace

    try:
        Trace().on_train_start(trainer, module)
    except TypeError as error:
        return str(error)
    return None


def of_fsdp1():
    """Take note of what Lightning and hooktrace say to FSDP1."""
    try:
        lightning.Trainer(strategy="fsdp", accelerator="cpu", devices=2)
    except ValueError as error:
        facts["Lightning's"] = str(error)
    strategy = FSDPStrategy()  # with a model, as only a device lets Lightning make it
    strategy.model = FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu"))
    facts["FSDP1"] = refused(SimpleNamespace(strategy=strategy, world_size=2), None)


class Net(lightning.LightningModule):
    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))

    def configure_model(self) -> None:
        shard(self.layers, self.device_mesh)

    def on_fit_start(self) -> None:
        if self.by_hand:
            trace(self, "by hand")
            facts["FSDP2"] = refused(self.trainer, self)

    def training_step(self, batch, _):
        return self.layers(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.log("loss", self.layers(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data() -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(96, 64, generator=generator)), batch_size=4)


def by_the_trainer(by_hand):
    """Return a model that was trained with accumulation, validation and checkpoints."""
    torch.manual_seed(0)
    net = Net(by_hand)
    trainer = lightning.Trainer(
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1), devices=2,
        accelerator="cpu", max_epochs=1, accumulate_grad_batches=2, val_check_interval=4,
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=FILE.with_suffix(f".saved{by_hand}"),
    )  # fmt: skip
    trainer.fit(net, data(), data())
    return net


def by_fabric(by_hand):
    """Return a model that was trained with accumulation, evaluation and a checkpoint."""
    strategy = FabricStrategy(shard, data_parallel_size=2, tensor_parallel_size=1)
    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    torch.manual_seed(0)
    model = fabric.setup_module(nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))))
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1))
    if by_hand:
        trace(model, "fabric")
    batches = fabric.setup_dataloaders(data())
    for number, (batch,) in enumerate(batches):
        with fabric.no_backward_sync(model, enabled=number % 2 == 0):
            fabric.backward(model(batch).square().mean())
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        if number == 5:
            with torch.no_grad():
                model(batch)
            path = FILE.with_suffix(f".fabric{by_hand}")
            fabric.save(path, {"model": model, "optimizer": optimizer})
    return model


def main(by_hand: bool) -> None:
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    models = [by_the_trainer(by_hand), by_fabric(by_hand)]
    if by_hand:
        of_fsdp1()
    found = [get_model_state_dict(model, options=whole) for model in models]
    if dist.get_rank() == 0 and not by_hand:
        bits = torch.cat([value.flatten() for one in found for value in one.values()])
        FILE.write_bytes(bits.numpy().tobytes())
    dist.barrier()
    del models
    gc.collect()  # or gloo may abort at the end, with or without hooktrace


dist.init_process_group("gloo")
for how in HOWS:
    main(how == "by-hand")
if dist.get_rank() == 0:
    print(json.dumps(facts))
dist.destroy_process_group()
