"""One end of a network cable that takes its time: ``cable.py DEVICE DELAY_MS SOCKET_FD``.

    tun device of this namespace <--> packets, held for DELAY_MS on their way out <--> the other end

For machines whose kernel has no ``netem``.  Ends when the other end does.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_LARGEST = 65536


def main(device: str, delay_s: float, other_fd: int) -> None:
    """Carry packets until the other end is closed."""
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", device.encode(), _TUN_WITHOUT_HEADER))
    other = socket.socket(fileno=other_fd)
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([tun, other], [], [], pause)
        if tun in readable:
            waiting.append((time.monotonic() + delay_s, os.read(tun, _LARGEST)))
        if other in readable:
            packet = other.recv(_LARGEST)
            if not packet:
                return
            with suppress(OSError):  # the device is down: what comes is lost
                os.write(tun, packet)
        while waiting and waiting[0][0] <= time.monotonic():
            other.send(waiting.popleft()[1])


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) / 1000, int(sys.argv[3]))
