"""What the demo is asked to do, checked before any process starts."""

from __future__ import annotations

import errno
import importlib.util
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ...exporters import OpenTelemetryExporter
from ...hooks.catalogue import HookEntry, candidates, catalogue
from ...hooks.sharded import SHARDED_HOOKS, ShardedHookEntry
from ...records.errors import UsageError

HOOKS: dict[str, HookEntry] = {one.name: one for one in (*catalogue(), *candidates())}
"""All standard hooks, and those with other options than their own."""

UNIT_HOOKS: dict[str, ShardedHookEntry] = {one.name: one for one in reversed(SHARDED_HOOKS)}
"""Those for a sharded model, with their own defaults."""

_NONE = "allreduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The demo's options.

    ``hook`` is a key of ``HOOKS``, or with ``fsdp``, which shards the model, of ``UNIT_HOOKS``;
    ``allreduce`` is none there.  Rank r serves its metrics on ``port + r``, on any free port
    with 0.  ``out`` gets all files.  ``bucket_cap_mb`` is DDP's.  ``hold`` serves the metrics
    again after the job, until Ctrl-C.
    """

    hook: str
    ranks: int
    steps: int
    out: Path
    port: int
    bucket_cap_mb: float
    hold: bool
    fsdp: bool = False

    @property
    def hook_name(self) -> str:
        """What the hook is called."""
        if not self.fsdp:
            return HOOKS[self.hook].hook_name
        return "fully_shard" if self.unit_hook is None else self.unit_hook.name

    @property
    def unit_hook(self) -> ShardedHookEntry | None:
        """What takes the place of a collective of the sharded model, if anything does."""
        return None if self.hook == _NONE else UNIT_HOOKS[self.hook]

    def check(self) -> None:
        """Raise ``UsageError`` for the first option that cannot work; makes ``out``."""
        self._check_hook()
        if self.ranks < 1:
            raise UsageError(f"{self.ranks} ranks cannot train; pass --ranks 1 or more")
        if self.fsdp and self.ranks < 2:
            raise UsageError("over one rank nothing is sharded; pass --fsdp with --ranks 2 or more")
        if self.steps < 1:
            raise UsageError(f"{self.steps} steps are no training; pass --steps 1 or more")
        if not self.bucket_cap_mb > 0:
            raise UsageError(
                f"a bucket cannot hold {self.bucket_cap_mb:g} MB; pass --bucket-cap-mb above 0"
            )
        self._check_ports()
        _check_exporters()
        _check_opentelemetry()
        self._check_out()

    def _check_hook(self) -> None:
        if not self.fsdp and self.hook not in HOOKS:
            raise UsageError(
                f"no hook is called {self.hook!r}; pass --hook a name that 'hooktrace hooks' lists"
            )
        if self.fsdp and self.hook not in {_NONE, *UNIT_HOOKS}:
            raise UsageError(
                f"a sharded model takes no hook {self.hook!r}; pass --hook one of "
                f"{', '.join(sorted(UNIT_HOOKS))}, or none"
            )

    def _check_ports(self) -> None:
        if self.port == 0:
            return
        if not 0 < self.port <= 65536 - self.ranks:
            raise UsageError(
                f"{self.ranks} rank(s) from port {self.port} on leave the range of ports; "
                "pass --port 9464, or --port 0 for free ones"
            )
        for rank in range(self.ranks):
            try:  # as the exporter does: a port in TIME_WAIT after the last run is free
                socket.create_server(("127.0.0.1", self.port + rank)).close()
            except OSError as error:
                in_use = error.errno == errno.EADDRINUSE
                why = "is in use" if in_use else f"cannot be bound: {_reason(error)}"
                raise UsageError(
                    f"port {self.port + rank}, for the metrics of rank {rank}, {why}; "
                    "pass another --port, or --port 0 for free ones"
                ) from error

    def _check_out(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            # Only making a file tells the truth: os.access is blind to read-only mounts and root.
            with tempfile.TemporaryFile(dir=self.out):
                pass
        except OSError as error:
            raise UsageError(
                f"cannot write in {self.out}: {_reason(error)}; "
                "pass --out a directory that you may write"
            ) from error


def _check_exporters() -> None:
    for package in ("prometheus_client", "tensorboard"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; pip install 'hooktrace[all]'")


def _check_opentelemetry() -> None:
    if not sends_opentelemetry():
        return
    try:
        OpenTelemetryExporter().close()
    except (ImportError, ValueError) as error:
        raise UsageError(f"{error}; or unset OTEL_EXPORTER_OTLP_ENDPOINT") from error


def sends_opentelemetry() -> bool:
    """Whether the environment names an OTLP endpoint."""
    return any(
        value and name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("ENDPOINT")
        for name, value in os.environ.items()
    )


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or errno.EIO)
