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
from hooktrace.integrations import lightning as callback
from hooktrace.integrations.lightning import Trace

warnings.simplefilter("ignore")
FOLDER = sys.argv[1]
FIRST: list[int] = []


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


def noting(*model: object, tracer: hooktrace.Tracer, **options: object) -> object:
    FIRST.append(tracer.first_step)  # without a hook a model may take it at once
    return hooktrace.instrument(*model, tracer=tracer, **options)


def fit(
    epochs: int, hook: object, state: object, strategy: DDPStrategy, path: str | None = None
) -> tuple[lightning.Trainer, Net, list[int]]:
    """Train with a traced hook; return the trainer, the model and the steps that were recorded."""
    net = Net()
    with hooktrace.Tracer(error_every=0) as tracer:
        trainer = lightning.Trainer(
            strategy=strategy, devices=2, accelerator="cpu", max_epochs=epochs, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[Trace(hook, state, tracer=tracer)],
        )  # fmt: skip
        trainer.fit(net, data(), ckpt_path=path)
        return trainer, net, [step.step for step in tracer.steps()]


def post_local() -> bool:
    state = hooks.PostLocalSGDState(None, dist.group.WORLD, 4)
    strategy = DDPStrategy(ddp_comm_state=state, model_averaging_period=2)
    fit(1, hooks.post_localSGD_hook, state, strategy)
    return strategy._model_averager is not None and state.iter == 4


def resumed() -> tuple[bool, list[int]]:
    """Return whether a run that goes on from a checkpoint ends as the whole one; its steps."""
    runs = []
    for epochs, path in ((1, None), (2, None), (2, f"{FOLDER}/half.ckpt")):
        state = hooks.PowerSGDState(None, 2, 2)
        trainer, net, steps = fit(epochs, hooks.powerSGD_hook, state, DDPStrategy(), path)
        if epochs == 1:
            trainer.save_checkpoint(f"{FOLDER}/half.ckpt")
        runs.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    return torch.equal(*runs[1:]), steps


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
    callback.instrument = noting
    facts: dict[str, object] = {"averages models": post_local(), "first": FIRST}
    facts["resumed"], facts["steps"] = resumed()
    with hooktrace.Tracer(error_every=0) as tracer:
        facts["fabric"] = fabric(tracer)
    if dist.get_rank() == 0:
        print(json.dumps(facts))
    hooktrace.shutdown()


main()
