"""Whether a loss scaler scaled the loss whose gradients are under way.

    scaler.scale(loss) --> yes --> backward, where hooks are called --> scaler.update() --> no

``scaler.step`` leaves a step out whose gradients are not all finite: what a scale that is too large
makes of them does no harm.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.amp.grad_scaler import GradScaler

_scaled: list[bool] = [False]


def is_loss_scaled() -> bool:
    """Return whether the loss under way is scaled; of this process, whichever the model."""
    return _scaled[0]


def hear_of_scalers() -> None:
    """Have scalers say when they scale and when they are done; once a process."""
    scale: Any = GradScaler.scale
    update: Any = GradScaler.update
    if hasattr(scale, "__wrapped__"):
        return

    @functools.wraps(scale)
    def heard_scale(self: GradScaler, *args: Any, **options: Any) -> Any:
        _scaled[0] = self.is_enabled() or _scaled[0]
        return scale(self, *args, **options)

    @functools.wraps(update)
    def heard_update(self: GradScaler, *args: Any, **options: Any) -> Any:
        _scaled[0] = False
        return update(self, *args, **options)

    GradScaler.scale = heard_scale  # type: ignore[method-assign]
    GradScaler.update = heard_update  # type: ignore[method-assign]
