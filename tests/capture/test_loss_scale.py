"""When a loss is scaled."""

from __future__ import annotations

import torch
from torch.amp import GradScaler

from hooktrace.capture.loss_scale import hear_of_scalers, is_loss_scaled


def test_from_scaling_to_the_update() -> None:
    """However often it is asked for; results are the scaler's own."""
    for _ in range(2):
        hear_of_scalers()
    scaler, off = GradScaler("cpu", init_scale=8.0), GradScaler("cpu", enabled=False)
    loss = torch.tensor(2.0, requires_grad=True)
    assert not is_loss_scaled()
    assert off.scale(loss) is loss
    assert not is_loss_scaled()
    assert scaler.scale(loss).item() == 16.0
    assert is_loss_scaled()
    off.scale(loss)
    assert is_loss_scaled()
    optimizer = torch.optim.SGD([loss], lr=1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert is_loss_scaled()
    scaler.update()
    assert not is_loss_scaled()
    assert loss.item() == 1.0
