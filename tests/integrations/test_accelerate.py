"""Accelerate itself, in its own environment: its hooks and wrappers, and its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integrations.frameworks import needs_frameworks, on_two_ranks

pytestmark = [pytest.mark.slow, needs_frameworks]


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


def test_the_example(tmp_path: Path) -> None:
    """It traces, and goes on from Accelerate's checkpoint as if it had not stopped."""
    said = on_two_ranks("examples/accelerate_ddp.py", tmp_path)
    assert "powerSGD_hook, medians of" in said
    assert said.splitlines()[-1] == "resumed as if it had not stopped: True"
