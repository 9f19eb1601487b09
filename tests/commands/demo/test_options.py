"""What the demo refuses before anything starts; more of it is in ``test_main``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.demo import DemoOptions
from hooktrace.records.errors import UsageError

SHARDED = DemoOptions(
    hook="allreduce", ranks=2, steps=10, out=Path(), port=0, bucket_cap_mb=2.0, hold=False,
    fsdp=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hook": "bf16"}, "a sharded model takes no hook 'bf16'; pass --hook one of E"),
        ({"ranks": 1}, "over one rank nothing is sharded; pass --fsdp with --ranks 2"),
    ],
)
def test_what_cannot_be_sharded(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    options = replace(SHARDED, out=tmp_path)
    options.check()
    with pytest.raises(UsageError, match=why):
        replace(options, **changed).check()


def test_a_sharded_model_s_hook_has_a_name() -> None:
    """Without one the collectives are torch's own."""
    assert (SHARDED.hook_name, SHARDED.unit_hook) == ("fully_shard", None)
    assert replace(SHARDED, hook="Fp8AllGather").hook_name == "Fp8AllGather"
