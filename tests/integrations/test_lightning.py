"""Lightning itself, in its own environment: ``fit``, its averaging, checkpoints, spawn, Fabric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import needs_frameworks, on_two_ranks, run
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, needs_frameworks]
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
    assert facts == {
        "averages models": True,
        "resumed": True,
        "steps": list(range(8, 16)),
        "fabric": 5,
    }


@shows(LIGHTNING, "`ddp_spawn`")
def test_ranks_that_lightning_spawns(tmp_path: Path) -> None:
    """The callback is pickled; each rank makes its tracer, which is closed before it ends."""
    run([SCRIPTS / "lightning_spawn.py", tmp_path], tmp_path)
    files = sorted((tmp_path / "plugins" / "hooktrace").glob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        assert (len(found.steps), found.closed) == (10, True)
