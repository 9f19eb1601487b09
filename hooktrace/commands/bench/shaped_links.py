"""Hosts whose links are as slow as one likes: network namespaces, joined by a bridge.

    namespace of a rank [cable] --veth pair, tbf--> [port0, port1, ... | bridge] namespace "switch"

Each host's own end sends at the rate and receives what the others send, at the same time: a link
that is full duplex.  Needs Linux, root, and ``ip`` and ``tc`` (iproute2).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...records.errors import UsageError

CABLE = "cable"
"""A host's network interface."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of <sched.h>
_LONGEST_PACKET = 1 << 16
"""Bytes, headers included: what the system hands to a link as one and has cut by the link."""
_HEADERS = 2000
_LONGEST_QUEUE = "200ms"
_DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """Namespaces by name, one a rank."""

    names: tuple[str, ...]

    def limit(self, mbit_s: float | None) -> None:
        """Let each host send so many Mbit/s, headers included; ``None``: as fast as it can."""
        for name in self.names:
            with suppress(subprocess.CalledProcessError):  # there is none to delete
                _run("tc", "-n", name, "qdisc", "del", "dev", CABLE, "root")
            packet = packet_bytes(mbit_s)
            _run("ip", "-n", name, "link", "set", CABLE, "gso_max_size", str(packet))
            if mbit_s is not None:
                burst = f"{packet + _HEADERS}b"
                rate = ("rate", f"{mbit_s:g}mbit", "burst", burst, "latency", _LONGEST_QUEUE)
                _run("tc", "-n", name, "qdisc", "add", "dev", CABLE, "root", "tbf", *rate)


def packet_bytes(mbit_s: float | None) -> int:
    """Return how long packets are on a link: a millisecond's bytes, within what systems make.

    A bucket of tokens holds a whole packet, and after a pause it is full, so that much goes at
    once: with packets of 64 KB an all-reduce of 64 KB took 1.4 ms on a link of 50 Mbit/s, which
    needs 10.5.  Packets that the bucket has to cut are slower than the link.
    """
    if mbit_s is None:
        return _LONGEST_PACKET
    return max(3000, min(_LONGEST_PACKET, round(mbit_s * 1e6 / 8 / 1e3)))


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Make ``count`` hosts that reach each other, and remove them.

    Raises ``UsageError`` where the system does not let this process make any.
    """
    prefix = f"hooktrace-{os.getpid()}"
    with ExitStack() as stack:
        try:
            switch = _namespace(f"{prefix}-switch", stack)
            names = [_namespace(f"{prefix}-{i}", stack) for i in range(count)]
            _run("ip", "-n", switch, "link", "add", "name", "switch0", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "switch0", "up")
            for i, name in enumerate(names):
                _join(name, f"10.78.0.{i + 1}/24", switch, f"port{i}")
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or error
            raise UsageError(
                f"this system makes no network namespaces with a bridge ({str(said).strip()}); run "
                "this as root on Linux, with iproute2"
            ) from error
        yield Hosts(tuple(names))


def enter(name: str) -> None:
    """Move this thread, and all that it starts, to a host.  Raises ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns: since Python 3.12
    with Path("/run/netns", name).open() as file:
        if libc.setns(file.fileno(), _NEW_NETWORK):
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter the network namespace {name}: {os.strerror(code)}")


def _namespace(name: str, stack: ExitStack) -> str:
    _run("ip", "netns", "add", name)
    stack.callback(_run, "ip", "netns", "del", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    return name


def _join(host: str, address: str, switch: str, port: str) -> None:
    ends = ("type", "veth", "peer", "name", port, "netns", switch)
    _run("ip", "-n", host, "link", "add", "name", CABLE, *ends)
    _run("ip", "-n", host, "addr", "add", address, "dev", CABLE)
    _run("ip", "-n", host, "link", "set", CABLE, "up")
    _run("ip", "-n", switch, "link", "set", port, "master", "switch0", "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DEADLINE_S)
