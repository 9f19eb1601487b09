"""Accelerate itself, in its own environment: its hooks and wrappers, and its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import PYTHON, needs_frameworks, on_two_ranks, run
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_frameworks]
ACCELERATE = Framework(
    "Accelerate", "`Accelerator(kwargs_handlers=[DDPKwargs(comm_hook=...)])`", "accelerate"
)
LAUNCH = (
    Path(PYTHON).parent / "accelerate", "launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1", "--main_process_port", "0", "--mixed_precision", "no",
    "--dynamo_backend", "no",
)  # fmt: skip
"""Two processes, without a device too."""


@shows(ACCELERATE, "its five hooks, each in its three wrappers", "hooks of your own")
def test_all_hooks_and_wrappers_on_gloo(tmp_path: Path) -> None:
    """Each trains as its hook does on plain DDP, bit for bit, where torch's hang or raise."""
    script = "tests/integrations/scripts/accelerate_hooks.py"
    facts = json.loads(on_two_ranks(script, tmp_path).splitlines()[-1])
    assert "top_k" in facts.pop("refused comm_hook")
    assert "pass no, fp16, bf16" in facts.pop("refused comm_wrapper")
    assert facts.pop("steps") == 17 * 6
    assert facts.pop("anomalies") == []
    assert len(facts) == 17
    assert {name for name, same in facts.items() if not same} == set()


@shows(ACCELERATE, "`accumulate`", "`save_state` and `load_state`")
def test_the_example(tmp_path: Path) -> None:
    """It traces, and goes on from Accelerate's checkpoint as if it had not stopped."""
    said = on_two_ranks("examples/accelerate_ddp.py", tmp_path)
    assert "powerSGD_hook, medians of" in said
    assert said.splitlines()[-1] == "resumed as if it had not stopped: True"


@shows(ACCELERATE, "`accelerate launch -m hooktrace run`")
def test_a_script_that_does_not_know_hooktrace(tmp_path: Path) -> None:
    """``accelerate launch -m hooktrace run`` traces both ranks, and trains the same bits."""
    script = REPOSITORY / "tests" / "distributed" / "auto_script.py"
    run([*LAUNCH, script, "plain"], tmp_path)
    run([*LAUNCH, "-m", "hooktrace", "run", script, "traced"], tmp_path)
    assert (tmp_path / "traced").read_bytes() == (tmp_path / "plain").read_bytes()
    (first, second) = sorted((tmp_path / "runs").rglob("*.jsonl"))
    assert [first.name, second.name] == ["rank00000.jsonl", "rank00001.jsonl"]
    for rank, file in enumerate((first, second)):
        found = read_parts([file])
        assert (found.run.rank, found.run.world_size, found.closed) == (rank, 2, True)
        assert {step.hook for step in found.steps} == {"ddp_allreduce"}
        assert [step.step for step in found.steps] == list(range(6))
