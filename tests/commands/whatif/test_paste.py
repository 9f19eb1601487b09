"""The code of advice runs as it is, for every hook that can be advised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hooktrace import default_tracer
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.commands.whatif.paste import code_of
from hooktrace.hooks.candidates import candidates
from tests.analysis.whatif.answers import answer


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A job of this process alone."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def run(code: str) -> dict[str, Any]:
    """Run the code in a script that has a model, and train a step."""
    model = torch.nn.Linear(64, 64)
    script = {
        "model": model, "ddp": DistributedDataParallel(model),
        "DistributedDataParallel": DistributedDataParallel,
    }  # fmt: skip
    try:
        exec(code, script)
        script["ddp"](torch.ones(2, 64)).sum().backward()
    finally:
        default_tracer().close()
    return script


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("label", [one.label for one in candidates() if one.label != "allreduce"])
def test_every_hooks_code_runs(label: str) -> None:
    """With the hook and the options of its label."""
    script = run(code_of(answer(), Choice(label, 5.0)))
    assert script["ddp"].bucket_bytes_cap == 5 << 20
    (one,) = (one for one in candidates() if one.label == label)
    registered, _ = script["ddp"]._comm_hooks[0]
    assert one.entry.hook_name in repr(registered.__wrapped__)
    for name, value in one.hook_options.items():
        assert f"{name}={value}" in code_of(answer(), Choice(label))
    for name, value in one.state_options.items():
        assert getattr(script["state"], name) == value


@pytest.mark.usefixtures("group")
def test_only_what_changes_is_in_it() -> None:
    """Buckets alone leave the hook, a hook alone leaves the buckets."""
    assert code_of(answer(), Choice(None, 2.5)) == (
        "ddp = DistributedDataParallel(model, bucket_cap_mb=2.5)"
    )
    assert "DistributedDataParallel" not in code_of(answer(), Choice("fp16"))
    assert run(code_of(answer(), Choice(None, 2.5)))["ddp"].bucket_bytes_cap == 2.5 * (1 << 20)
