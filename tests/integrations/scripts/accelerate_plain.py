"""A script that knows of Accelerate alone: ``accelerate_plain.py FILE`` writes what it trained."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(160, 64)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (batch,) in loader:
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
    trained = [p.detach().flatten() for p in model.parameters()]
    if accelerator.is_main_process:
        Path(sys.argv[1]).write_bytes(torch.cat(trained).numpy().tobytes())
    accelerator.wait_for_everyone()
    del model
    accelerator.end_training()


if __name__ == "__main__":
    main()
