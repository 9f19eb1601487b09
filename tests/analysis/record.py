"""Record files of real runs, on gloo ranks of this machine: ``python -m tests.analysis.record``.

    each kind --the demo, or two ranks--> rank*.jsonl of every rank --> recorded/<kind>.zip

They are recorded once and kept: tests of all views read them beside made-up jobs.  Some 24 steps of
a small model each; started again, this makes other times, and the golden files change with them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace.exporters import RecordFileExporter
from hooktrace.testing.ranks import run_ranks
from tests.distributed.harness import REPOSITORY

RECORDED = Path(__file__).with_name("recorded")
STEPS = 24
DEMOS = {
    "real-all-reduce": ("--hook", "allreduce"),
    "real-powersgd": ("--hook", "powersgd"),
    "real-fsdp": ("--fsdp",),
}
SCRIPTS = ("real-late", "real-plain", "real-join", "real-two-models", "real-hang")
LATE_S = 0.02
HELD_S = 6.0


def main() -> None:
    for kind in (*DEMOS, *SCRIPTS):
        with TemporaryDirectory() as folder:
            if kind in DEMOS:
                demo = ["hooktrace", "demo", "--steps", str(STEPS), "--port", "0", "--out", folder]
                subprocess.run([sys.executable, "-m", *demo, *DEMOS[kind]], check=True, timeout=300)
            else:
                run_ranks(2, train, kind, Path(folder))
            _pack(kind, Path(folder))


def _pack(kind: str, folder: Path) -> None:
    with ZipFile(RECORDED / f"{kind}.zip", "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("rank*.jsonl")):
            text = path.read_text().replace(f"{REPOSITORY}/", "")  # in stacks
            archive.writestr(f"plugins/hooktrace/{path.name}", text)


def train(kind: str, folder: Path) -> None:
    """Train on one rank, as the kind says."""
    torch.manual_seed(0)
    rank = dist.get_rank()
    options = {"hang_after_s": 3.0} if kind == "real-hang" else {}
    with hooktrace.Tracer([RecordFileExporter(folder)], error_every=10, **options) as tracer:
        names = ("generator", "critic") if kind == "real-two-models" else ("net",)
        models = [_model(kind, name, tracer) for name in names]
        steps = STEPS - 8 * rank * (kind == "real-join")
        with models[0].join(enable=kind == "real-join"):
            for step in range(steps):
                if rank == 1 and kind == "real-late":
                    time.sleep(LATE_S)
                if rank == 1 and kind == "real-hang" and step == 16:
                    time.sleep(HELD_S)
                for model in models:
                    model(torch.randn(16, 256)).square().mean().backward()


def _model(kind: str, name: str, tracer: hooktrace.Tracer) -> DistributedDataParallel:
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256)]
    ddp = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.6)
    hook = hooktrace.hooks.allreduce_hook
    if kind == "real-plain":
        hook = default_hooks.fp16_compress_hook
    hooktrace.instrument(ddp, hook, tracer=tracer, model=name)
    return ddp


if __name__ == "__main__":
    main()
