"""transformers' Trainer itself, in its own environment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integrations.frameworks import needs_frameworks, on_two_ranks
from tests.integrations.rows import Framework, shows
from tests.integrations.sharded_runs import traced_as_without
from tests.integrations.test_accelerate import ACCELERATE

pytestmark = [pytest.mark.slow, pytest.mark.long, needs_frameworks]
TRANSFORMERS = Framework("transformers", "`trace(trainer, hook)`", "transformers")


@shows(
    TRANSFORMERS,
    "accumulation",
    "gradient checkpointing",
    "resuming",
    "numbers in the Trainer's log",
)
def test_the_example(tmp_path: Path) -> None:
    """Accumulation, gradient checkpointing, and steps that go on from a checkpoint."""
    said = on_two_ranks("examples/transformers_trainer.py", tmp_path)
    assert len(re.findall(r"GPT2LMHeadModel(?:#2)?: fp16_compress_hook, medians of", said)) == 2
    assert "steps 0 to 39, 40 of them" in said
    (names,) = re.findall(r"logged by the trainer: (.*)", said)
    assert "'hooktrace/exposed_seconds'" in names


@shows(TRANSFORMERS, "a second `train()`")
def test_a_second_train(tmp_path: Path) -> None:
    """It is traced too, and the Trainer logs its losses as ever."""
    script = "tests/integrations/scripts/trainer_twice.py"
    facts = json.loads(on_two_ranks(script, tmp_path, tmp_path).splitlines()[-1])
    assert facts == {"counts": [12, 24], "hook": "ddp_allreduce", "anomalies": [], "losses": 2}


@shows(ACCELERATE, "sharded by its FSDP2, without a line and by `fsdp.trace` (see below)")
@shows(TRANSFORMERS, "sharded by FSDP2, without a line and by `fsdp.trace` (see below)")
def test_a_model_that_it_shards(tmp_path: Path) -> None:
    """A step is the Trainer's, of two batches; evaluations and checkpoints between are none."""
    ran = traced_as_without("trainer_sharded.py", tmp_path, "by-hand")
    steps = ran.steps("GPT2LMHeadModel")
    assert len(steps) == ran.facts["optimizer steps"] == 12
    # After an evaluation the units that are kept after forward are not gathered.
    assert [step.bucket_count for step in steps] == [16] * 4 + [14] + [16] * 3 + [14] + [16] * 3
    tied = "transformer.wte, transformer.ln_f, lm_head"
    units = {"<root>", "transformer.h.0", "transformer.h.1", tied}
    assert ran.units("GPT2LMHeadModel") == units
    assert "10 of 12 are included; left out: 2 to warm up" in ran.report()
    assert {step.hook for step in ran.steps("by hand")} == {"bf16_reduce_scatter"}
    assert len(ran.steps("by hand")) == 12
    assert "hooktrace.fsdp.trace(trainer.model_wrapped) in on_train" in ran.facts["refused"]
