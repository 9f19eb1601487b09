"""One rank of the demo: what a user's own training script would hold, with every exporter on."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import typer
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
from ...hooks.catalogue import HookEntry, candidates, catalogue
from ...hooks.sharded import SHARDED_HOOKS, ShardedHookEntry
from ...records.cores import usable_cores
from ...records.summary import ModelSummary
from ...tracing.tracer import Tracer
from .language_model import CharTransformer, batches, read_corpus

HOOKS: dict[str, HookEntry] = {one.name: one for one in (*catalogue(), *candidates())}
"""All standard hooks, and those with other options than their own."""
UNIT_HOOKS: dict[str, ShardedHookEntry] = {one.name: one for one in reversed(SHARDED_HOOKS)}
"""Those for a sharded model, with their own defaults."""
_BATCH = 8
_ERROR_EVERY = 20
_LENGTH = 64
_LINES = 8
"""How many lines a run prints on its way."""
_NAME = "char_transformer"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The demo's options.

    ``hook`` is a key of ``HOOKS``, or with ``fsdp``, which shards the model, of ``UNIT_HOOKS``;
    ``allreduce`` is none there.  Rank r serves its metrics on ``port + r``, on any free port
    with 0.  ``out`` gets all files.  ``bucket_cap_mb`` is DDP's.
    """

    hook: str
    ranks: int
    steps: int
    out: Path
    port: int
    bucket_cap_mb: float
    fsdp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """What one rank hands to the launcher at the end; ``losses`` has one entry a step.

    ``lost`` and ``failures`` are the tracer's: records lost by reason, exporters disabled by name.
    """

    summary: ModelSummary | None
    losses: list[float]
    lost: dict[str, int]
    failures: dict[str, int]


def train(options: DemoOptions) -> RankResult:
    """Train on one rank, which is in its process group; every file is whole at any time."""
    warnings.filterwarnings("ignore", module=r"(torch|tensorboard)\.")
    torch.set_num_threads(max(1, usable_cores() // options.ranks))
    metrics = PrometheusExporter(options.port, file_sd=options.out / "prometheus")
    exporters: list[Exporter] = [
        TensorBoardExporter(options.out), RecordFileExporter(options.out), metrics
    ]  # fmt: skip
    if sends_opentelemetry():
        exporters.append(OpenTelemetryExporter())
    with Tracer(exporters, error_every=_ERROR_EVERY, error_all_buckets=True) as tracer:
        losses = _train(options, tracer, metrics.url)
        summary = next(iter(tracer.summary()), None)
    return RankResult(
        summary=summary, losses=losses, lost=tracer.losses(), failures=tracer.failures()
    )


def _train(options: DemoOptions, tracer: Tracer, url: str) -> list[float]:
    """Train and return the loss of each step.  All references to the model end here."""
    torch.manual_seed(0)
    model = CharTransformer(length=_LENGTH)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    trained = (_sharded if options.fsdp else _replicated)(model, options, tracer)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    corpus, losses = read_corpus(), []
    _say(
        f"{size:.1f} M parameters, {len(corpus) / 1e6:.1f} M characters of the standard library's "
        f"source\nmetrics of rank 0 while it runs: {url}"
    )
    windows = batches(corpus, batch=_BATCH, length=_LENGTH, seed=1 + dist.get_rank())
    for step, (inputs, targets) in enumerate(islice(windows, options.steps), 1):
        loss = cross_entropy(trained(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step * _LINES // options.steps > (step - 1) * _LINES // options.steps:
            _say(f"step {step}/{options.steps}  loss {losses[-1]:.2f}")
    return losses


def _say(text: str) -> None:
    if dist.get_rank() == 0:
        typer.echo(text)


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
    chosen = UNIT_HOOKS.get(options.hook)
    hooks = {} if chosen is None else {chosen.takes_place_of: chosen.make()}
    fsdp.trace(model, tracer=tracer, name=_NAME, **hooks)
    return model


def sends_opentelemetry() -> bool:
    """Whether the environment names an OTLP endpoint."""
    return any(
        value and name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("ENDPOINT")
        for name, value in os.environ.items()
    )
