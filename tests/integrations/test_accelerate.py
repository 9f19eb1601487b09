"""Accelerate itself, in its own environment: its hooks and wrappers, and its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import PYTHON, needs_frameworks, on_two_ranks, run
from tests.integrations.rows import Framework, shows
from tests.integrations.sharded_runs import traced_as_without

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
    script = REPOSITORY / "tests" / "integrations" / "scripts" / "accelerate_plain.py"
    run([*LAUNCH, script, "plain"], tmp_path)
    run([*LAUNCH, "-m", "hooktrace", "run", script, "traced"], tmp_path)
    assert (tmp_path / "traced").read_bytes() == (tmp_path / "plain").read_bytes()
    (first, second) = sorted((tmp_path / "runs").rglob("*.jsonl"))
    assert [first.name, second.name] == ["rank00000.jsonl", "rank00001.jsonl"]
    for rank, file in enumerate((first, second)):
        found = read_parts([file])
        assert (found.run.rank, found.run.world_size, found.closed) == (rank, 2, True)
        assert {step.hook for step in found.steps} == {"ddp_allreduce"}
        assert [step.step for step in found.steps] == list(range(10))


@shows(ACCELERATE, "sharded by its FSDP2, without a line and by `fsdp.trace` (see below)")
def test_a_model_that_it_shards(tmp_path: Path) -> None:
    """A step is two batches; evaluations, a checkpoint and state dicts between are none.

    Without a device its plugin has no effect: what it makes then is a DDP model, which is traced.
    """
    ran = traced_as_without("accelerate_sharded.py", tmp_path, "by-hand", "as-it-is")
    steps = ran.steps("Net")
    assert ran.units("Net") == {"<root>", "blocks.0", "blocks.1", "blocks.2"}
    # Gathered in forward and backward for both batches; the root not after an evaluation.
    assert [step.bucket_count for step in steps] == [18, 18, 17, 18, 17, 18]
    assert {step.hook for step in steps} == {"fully_shard"}
    assert {step.hook for step in ran.steps("by hand")} == {"bf16_reduce_scatter"}
    assert len(ran.steps("by hand")) == 6
    plainly, by_hand, as_it_is, *others = ran.lines
    assert plainly.startswith("hooktrace: Net: fully_shard, medians of 4 steps of ")
    assert by_hand.startswith("hooktrace: by hand: bf16_reduce_scatter, medians of 4 steps of ")
    assert as_it_is.startswith("hooktrace: Net#2: ddp_allreduce, medians of ")
    assert len(others) == 2, others
    report = ran.report()
    assert "sharded by fully_shard (FSDP2): units take the place of buckets" in report
    assert "4 of 6 are included; left out: 2 of the first two" in report
