"""What the demo refuses before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.demo import DemoOptions
from hooktrace.records.errors import UsageError


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hook": "no-such"}, "no hook is called 'no-such'; pass --hook a name that"),
        (
            {"fsdp": True, "hook": "bf16"},
            "a sharded model takes no hook 'bf16'; pass --hook one of E",
        ),
        (
            {"fsdp": True, "ranks": 1},
            "over one rank nothing is sharded; pass --fsdp with --ranks 2",
        ),
    ],
)
def test_what_cannot_work(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    """Each with what to pass."""
    options = DemoOptions(
        hook="allreduce", ranks=2, steps=10, out=tmp_path, port=0, bucket_cap_mb=2.0, hold=False
    )
    options.check()
    with pytest.raises(UsageError, match=why):
        replace(options, **changed).check()


def test_a_sharded_model_s_hook_has_a_name(tmp_path: Path) -> None:
    """Without one the collectives are torch's own."""
    options = DemoOptions(
        hook="allreduce", ranks=2, steps=10, out=tmp_path, port=0, bucket_cap_mb=2.0, hold=False,
        fsdp=True,
    )  # fmt: skip
    assert (options.hook_name, options.unit_hook) == ("fully_shard", None)
    assert replace(options, hook="Fp8AllGather").hook_name == "Fp8AllGather"
