"""Lightning starts the ranks itself, by spawning: ``lightning_spawn.py FOLDER``."""

import functools
import sys
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import hooktrace
from hooktrace.exporters import RecordFileExporter
from hooktrace.integrations.lightning import Trace


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_tracer(folder: str) -> hooktrace.Tracer:
    return hooktrace.Tracer([RecordFileExporter(folder)])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    trace = Trace(
        hooktrace.hooks.fp16_compress_hook, tracer=functools.partial(make_tracer, sys.argv[1])
    )
    trainer = lightning.Trainer(
        strategy="ddp_spawn", devices=2, accelerator="cpu", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[trace],
    )  # fmt: skip
    trainer.fit(Net(), DataLoader(TensorDataset(torch.ones(40, 8)), batch_size=2))
