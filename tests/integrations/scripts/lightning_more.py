"""Lightning on two gloo ranks: post-local SGD, a checkpoint with PowerSGD, Fabric."""

import json
import sys
import warnings

import lightning
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

import hooktrace
from hooktrace import hooks
from hooktrace.integrations.lightning import Trace

warnings.simplefilter("ignore")
FOLDER = sys.argv[1]


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return self.layers(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data() -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(64, 64, generator=generator)), batch_size=4)


def make_trainer(strategy: DDPStrategy, callback: Trace, epochs: int) -> lightning.Trainer:
    return lightning.Trainer(
        strategy=strategy, devices=2, accelerator="cpu", max_epochs=epochs, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[callback],
    )  # fmt: skip


def post_local(tracer: hooktrace.Tracer) -> bool:
    state = hooks.PostLocalSGDState(None, dist.group.WORLD, 4)
    strategy = DDPStrategy(ddp_comm_state=state, model_averaging_period=2)
    trainer = make_trainer(strategy, Trace(hooks.post_localSGD_hook, state, tracer=tracer), 1)
    trainer.fit(Net(), data())
    return strategy._model_averager is not None and state.iter == 4


def resumed(tracer: hooktrace.Tracer) -> tuple[bool, list[int]]:
    """Return whether a run that goes on from a checkpoint ends as the whole one; its steps."""

    def fit(epochs: int, path: str | None = None) -> tuple[lightning.Trainer, Net]:
        state = hooks.PowerSGDState(None, 2, 2)
        net = Net()
        own = hooktrace.Tracer(error_every=0)
        trainer = make_trainer(
            DDPStrategy(), Trace(hooks.powerSGD_hook, state, tracer=tracer if path else own), epochs
        )
        trainer.fit(net, data(), ckpt_path=path)
        own.close()
        return trainer, net

    first, _ = fit(1)
    first.save_checkpoint(f"{FOLDER}/half.ckpt")
    _, whole = fit(2)
    _, net = fit(2, f"{FOLDER}/half.ckpt")
    same = all(torch.equal(a, b) for a, b in zip(net.parameters(), whole.parameters(), strict=True))
    return same, [s.step for s in tracer.steps()]


def fabric(tracer: hooktrace.Tracer) -> int:
    made = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    made.launch()
    net = torch.nn.Linear(8, 8)
    model, optimizer = made.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    hooktrace.instrument(model, hooks.fp16_compress_hook, tracer=tracer)
    for _ in range(5):
        optimizer.zero_grad()
        made.backward(model(torch.ones(2, 8)).sum())
        optimizer.step()
    return len(tracer.steps())


def main() -> None:
    dist.init_process_group("gloo")
    facts: dict[str, object] = {}
    with hooktrace.Tracer(error_every=0) as tracer:
        facts["averages models"] = post_local(tracer)
    with hooktrace.Tracer(error_every=0) as tracer:
        facts["resumed"], facts["steps"] = resumed(tracer)
    with hooktrace.Tracer(error_every=0) as tracer:
        facts["fabric"] = fabric(tracer)
    if dist.get_rank() == 0:
        print(json.dumps(facts))
    hooktrace.shutdown()


main()
