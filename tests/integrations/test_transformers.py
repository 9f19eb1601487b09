"""transformers' Trainer itself, in its own environment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integrations.frameworks import needs_frameworks, on_two_ranks
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, needs_frameworks]
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
