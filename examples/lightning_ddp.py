"""Lightning, traced: ``torchrun --nproc-per-node 2 examples/lightning_ddp.py``."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import hooktrace
from hooktrace.integrations.lightning import Trace


class Net(lightning.LightningModule):
    """Learns to give zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.layers(batch[0]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


lightning.seed_everything(0, verbose=False)
tracer = hooktrace.Tracer()
trainer = lightning.Trainer(
    strategy="ddp",
    devices=2,
    accelerator="auto" if torch.accelerator.is_available() else "cpu",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[Trace(hooktrace.hooks.fp16_compress_hook, tracer=tracer)],
)
data = DataLoader(TensorDataset(torch.randn(1600, 256)), batch_size=20)
trainer.fit(Net(), data)
if trainer.is_global_zero:
    print(tracer.summary()[0])
tracer.close()
del trainer
hooktrace.shutdown()
