"""What these benchmarks share beyond the product's own harness (``hooktrace.commands.bench``).

Models, their steps, and all exporters at their default settings, with a backend on loopback.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist

from hooktrace.commands.bench.cost import _block
from hooktrace.commands.bench.harness import in_turns, rounds_of
from hooktrace.commands.bench.table import Row
from hooktrace.exporters import (
    Exporter,
    OpenTelemetryExporter,
    PrometheusExporter,
    RecordFileExporter,
    TensorBoardExporter,
)
from hooktrace.testing import FakeBucket
from hooktrace.tracing.tracer import Tracer

STATM = Path("/proc/self/statm")
WIDTH, LAYERS, BATCH = 1024, 12, 64
"""Of the model of a whole step, 12.6 M parameters."""

_WARMUP_STEPS = 8

Train = Callable[[int], None]
Block = tuple[float, float]
"""Mean ns of a step: by the clock, and processor time of the process."""

EXPORTERS: dict[str, Callable[[Path], Exporter]] = {
    "Prometheus": lambda folder: PrometheusExporter(port=0),
    "TensorBoard": lambda folder: TensorBoardExporter(folder / "tensorboard"),
    "record files": lambda folder: RecordFileExporter(folder / "records"),
    "OpenTelemetry": lambda folder: OpenTelemetryExporter(),
}
"""What makes each as a job would, with its files below a folder."""


def resident_mib() -> float:
    """Return the size of this process's memory (Linux only)."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fake_buckets(count: int) -> list[FakeBucket]:
    """Return the small buckets of one model, in order."""
    return [FakeBucket([torch.zeros(16)], index=i, is_last=i == count - 1) for i in range(count)]


def step_s(model: Any, data: torch.Tensor) -> float:
    """Return how many seconds forward and backward take, once all ranks have come to them."""
    dist.barrier()
    started = time.perf_counter()
    model.zero_grad()
    model(data).square().mean().backward()
    return time.perf_counter() - started


def blocks_in_turns(
    tracer: Tracer, sides: Sequence[tuple[Train, bool]], seconds: float
) -> list[list[Block]]:
    """Return blocks of steps in turns; of each side what trains it, and whether it is recorded."""
    turns = [partial(_block, tracer, records, train) for train, records in sides]
    rounds = rounds_of(in_turns(turns), seconds)
    tracer.recording = True
    return rounds


def warm(model: Any) -> Train:
    """Return what trains a model for so many steps, after some that warm it up."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = torch.randn(BATCH, WIDTH)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

    train(_WARMUP_STEPS)
    return train


def whole_step_rows(what: str, rounds: list[list[Block]]) -> Iterator[Row]:
    """Yield how much longer a block of the first side took than one of the second, untraced."""
    wall, cpu = np.array([np.divide(traced, plain) for traced, plain in rounds]).T.tolist()
    yield Row(what, wall, "ratio", budget=1.01, note=f"{len(rounds)} pairs of blocks")
    yield Row("the same, processor time of all threads", cpu, "ratio")


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name that http.server calls
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def otlp_sink() -> Iterator[None]:
    """Run an OTLP backend that keeps nothing; processes that start find it by the environment."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sink) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with mock.patch.dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                yield
        finally:
            server.shutdown()


@contextmanager
def tracer_with_all_exporters() -> Iterator[Tracer]:
    """A tracer whose files are gone afterwards."""
    with (
        TemporaryDirectory() as folder,
        Tracer([make(Path(folder)) for make in EXPORTERS.values()]) as tracer,
    ):
        yield tracer
