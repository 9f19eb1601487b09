"""One rank of the demo: what a user's own training script would hold, with every exporter on."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from ... import fsdp, instrument
from ...exporters import (
    Exporter,
    OpenTelemetryExporter,
    PrometheusExporter,
    RecordFileExporter,
    TensorBoardExporter,
)
from ...records.cores import usable_cores
from ...records.summary import ModelSummary
from ...tracing.tracer import Tracer
from .language_model import CharTransformer, batches, read_corpus
from .options import HOOKS, DemoOptions, sends_opentelemetry
from .screen import Screen

_BATCH = 8
_ERROR_EVERY = 20
_LENGTH = 64
_NAME = "char_transformer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """What one rank hands to the launcher at the end; ``losses`` has one entry a step.

    ``lost`` and ``failures`` are the tracer's: records lost by reason, exporters disabled by name.
    """

    rank: int
    summary: ModelSummary | None
    losses: list[float]
    log_file: Path
    lost: dict[str, int]
    failures: dict[str, int]


def train(options: DemoOptions) -> RankResult:
    """Train on one rank, which is in its process group; every file is whole at any time."""
    warnings.filterwarnings("ignore", module=r"(torch|tensorboard)\.")
    torch.set_num_threads(max(1, usable_cores() // options.ranks))
    rank = dist.get_rank()
    screen = Screen(options.steps)
    metrics = PrometheusExporter(options.port, file_sd=options.out / "prometheus")
    exporters: list[Exporter] = [
        TensorBoardExporter(options.out),
        RecordFileExporter(options.out),
        metrics,
    ]
    if sends_opentelemetry():
        exporters.append(OpenTelemetryExporter())
    if rank == 0:
        exporters.append(screen)
    with Tracer(
        exporters,
        error_every=_ERROR_EVERY,
        error_all_buckets=True,
    ) as tracer:
        losses = _train(options, tracer, screen, rank, metrics.url)
        summary = next(iter(tracer.summary()), None)
    return RankResult(
        rank=rank,
        summary=summary,
        losses=losses,
        log_file=Path(os.environ["TORCHELASTIC_ERROR_FILE"]).with_name("stderr.log"),
        lost=tracer.losses(),
        failures=tracer.failures(),
    )


def _train(
    options: DemoOptions, tracer: Tracer, screen: Screen, rank: int, url: str
) -> list[float]:
    """Train and return the loss of each step.  All references to the model end here."""
    torch.manual_seed(0)
    model = CharTransformer(length=_LENGTH)
    parameters = sum(p.numel() for p in model.parameters())
    trained = (_sharded if options.fsdp else _replicated)(model, options, tracer)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    corpus = read_corpus()
    if rank == 0:
        screen.start(parameters, len(corpus), url)
    losses: list[float] = []
    windows = batches(corpus, batch=_BATCH, length=_LENGTH, seed=1 + rank)
    for inputs, targets in islice(windows, options.steps):
        loss = cross_entropy(trained(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        screen.step_ended(len(losses), losses[-1])
    return losses


def _replicated(model: CharTransformer, options: DemoOptions, tracer: Tracer) -> nn.Module:
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.bucket_cap_mb)
    chosen = HOOKS[options.hook]
    # Hooks that begin with a thousand steps of plain all-reduce would show nothing else here.
    state = chosen.make_state(None, **chosen.check_options)
    instrument(ddp, chosen.hook, state, tracer=tracer, model=_NAME)
    return ddp


def _sharded(model: CharTransformer, options: DemoOptions, tracer: Tracer) -> nn.Module:
    mesh = init_device_mesh("cpu", (options.ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    chosen = options.unit_hook
    hooks = {} if chosen is None else {chosen.takes_place_of: chosen.make()}
    fsdp.trace(model, tracer=tracer, name=_NAME, **hooks)
    return model
