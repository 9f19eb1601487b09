"""Small tensors of a device, copied to the host without waiting, and read once they are there.

    tensors --one run of bytes--> pinned memory of the host, with an event behind it
    drain: has_arrived()? --> read() --> the tensors, on the host

A copy to memory that is not pinned waits for the device.  torch gives pinned memory out again, so
that none is allocated, which may wait too, once there is enough for the copies under way.  Tensors
of a CPU go the same way, and have arrived at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .device_events import DeviceEvent, EventPool


class HostCopy:
    """Tensors of one device on their way; ``pool``: where the event behind them is from."""

    __slots__ = ("_device", "_event", "_host", "_parts", "_pool")

    def __init__(self, tensors: Mapping[str, torch.Tensor], pool: EventPool) -> None:
        self._parts = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        packed = torch.cat([_bytes_of(tensor) for tensor in tensors.values()])
        self._pool, self._device = pool, packed.device
        self._host = packed
        self._event: DeviceEvent | None = None
        if packed.device.type != "cpu":
            self._host = new_pinned(packed.numel())
            self._host.copy_(packed, non_blocking=True)
            self._event = pool.record(packed.device)

    def has_arrived(self) -> bool:
        """Return whether the device has passed the copy."""
        return self._event is None or self._event.query()

    def let_go(self) -> None:
        """Give the event back to its pool: nobody asks whether the copy has arrived any more."""
        if self._event is not None:
            self._pool.give(self._device, self._event)

    def read(self) -> dict[str, torch.Tensor]:
        """Return the tensors on the host, once they have arrived; asked for once only."""
        self.let_go()
        found: dict[str, torch.Tensor] = {}
        at = 0
        for name, (dtype, shape) in self._parts.items():
            size = shape.numel() * dtype.itemsize
            # A copy of its own: the bytes of another type have to begin where that type may.
            found[name] = self._host[at : at + size].clone().view(dtype).view(shape)
            at += size
        return found


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    # A single element out of a row keeps the row's stride in view, reshape and contiguous, and
    # torch does not view that as bytes.
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8)


def new_pinned(size: int) -> torch.Tensor:
    """Return so many bytes of the host's memory that devices copy to by themselves."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
