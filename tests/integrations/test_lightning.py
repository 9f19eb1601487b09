"""Lightning itself, in its own environment: ``fit``, its averaging, checkpoints, spawn, Fabric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import needs_frameworks, on_two_ranks, run
from tests.integrations.rows import Framework, shows
from tests.integrations.sharded_runs import traced_as_without

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_frameworks]
LIGHTNING = Framework("Lightning", "`Trainer(callbacks=[Trace(hook)])`", "lightning")
SCRIPTS = REPOSITORY / "tests" / "integrations" / "scripts"


@shows(LIGHTNING, "`fit` with `ddp`")
def test_the_example(tmp_path: Path) -> None:
    """The model is traced under its own name."""
    said = on_two_ranks("examples/lightning_ddp.py", tmp_path)
    assert said.startswith("Net: fp16_compress_hook, medians of")


@shows(LIGHTNING, "checkpoints", "model averaging", "Fabric by `instrument`")
def test_averaging_checkpoints_and_fabric(tmp_path: Path) -> None:
    """Averaging begins for our state; a resumed run is the whole one; Fabric's module is taken."""
    said = on_two_ranks(SCRIPTS / "lightning_more.py", tmp_path, tmp_path)
    facts = json.loads(said.splitlines()[-1])
    assert (facts.pop("steps"), facts.pop("first")) == ([*range(8, 16)], [0, 0, 0, 8])
    assert facts == {"averages models": True, "resumed": True, "fabric": 5}


@shows(LIGHTNING, "`ddp_spawn`")
def test_ranks_that_lightning_spawns(tmp_path: Path) -> None:
    """The callback is pickled; each rank makes its tracer, which is closed before it ends."""
    run([SCRIPTS / "lightning_spawn.py", tmp_path], tmp_path)
    files = sorted((tmp_path / "plugins" / "hooktrace").glob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        assert (len(found.steps), found.closed) == (10, True)


@shows(
    LIGHTNING,
    "`ModelParallelStrategy`, of the Trainer and of Fabric, by `fsdp.trace` or without a line",
)
def test_models_that_its_strategy_has_sharded(tmp_path: Path) -> None:
    """The Trainer reduces each batch, also where it accumulates; Fabric only where it steps."""
    ran = traced_as_without("lightning_sharded.py", tmp_path, "by-hand")
    by_the_trainer, by_fabric = ran.steps("Sequential"), ran.steps("Sequential#2")
    # Three gathers, three again, three reductions; after a validation FSDP gathers one more.
    assert [step.bucket_count for step in by_the_trainer] == [10, 9, 9, 9] * 3
    assert [step.bucket_count for step in by_fabric] == [15, 15, 15, 16, 15, 15]
    assert ran.units("Sequential") == ran.units("Sequential#2") == {"0", "1", "2"}
    report = ran.report()
    assert "10 of 12 are included; left out: 2 to warm up" in report
    assert "0 gather bwd #2 0.0083 0.0083" in report
    for model, count in {"by hand": 12, "fabric": 6}.items():
        steps = ran.steps(model)
        assert len(steps) == count
        assert {step.hook for step in steps} == {"bf16_reduce_scatter"}
    assert ran.units("by hand") == {"layers.0", "layers.1", "layers.2"}
    assert ran.units("fabric") == {"0", "1", "2"}
    facts = ran.facts
    assert "ModelParallelStrategy makes no DistributedDataParallel model" in facts["FSDP2"]
    assert "call hooktrace.fsdp.trace(self) in the module's on_fit_start" in facts["FSDP2"]
    assert "FSDPStrategy makes no DistributedDataParallel model" in facts["FSDP1"]
    page = REPOSITORY.joinpath("docs", "frameworks.md").read_text()
    assert facts["Lightning's"].partition(", but")[0] in " ".join(page.split())
