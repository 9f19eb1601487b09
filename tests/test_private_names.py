"""What hooktrace uses of torch that torch calls private: one home each, and a way without it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from hooktrace import Tracer
from hooktrace.staging import backward, slots
from hooktrace.testing import FakeBucket
from tests.fakes import Job

PACKAGE = Path(__file__).parents[1] / "hooktrace"

HOMES = {
    "_accelerator_getStream": "staging/devices.py",
    "_all_gather_comm": "fsdp/torch_groups.py",
    "_all_reduce_hook": "fsdp/torch_groups.py",
    "_comm_hooks": "tracing/hookless.py",
    "_current_autograd_node": "staging/slots.py",
    "_current_graph_task_id": "staging/backward.py",
    "_dump_fr_trace_json": "ranks/hang/collectives.py",
    "_dump_nccl_trace_json": "ranks/hang/collectives.py",
    "_engine_run_backward": "staging/backward.py",
    "_execution_engine": "staging/backward.py",
    "_fsdp_param_groups": "fsdp/torch_groups.py",
    "_get_backend": "staging/groups.py",
    "_get_default_store": "staging/job.py",
    "_get_fsdp_state": "fsdp/torch_groups.py",
    "_get_sequence_number_for_group": "staging/groups.py",
    "_is_root": "integrations/sharded.py",
    "_last_post_reduce_events": "fsdp/torch_waits.py",
    "_module_info": "fsdp/torch_groups.py",
    "_reduce_scatter_comm": "fsdp/torch_groups.py",
    "_register_backend": "staging/order.py",
    "_register_builtin_comm_hook": "integrations/models.py",
    "_register_comm_hook": "integrations/models.py",
    "_resolve_group": "testing/check/wire.py",
    "_resolve_process_group": "ranks/hang/collectives.py",
    "_training_state": "fsdp/torch_waits.py",
    "_wait_for_post_backward": "fsdp/torch_waits.py",
    "_world": "staging/groups.py",
}
"""Where each name may stand."""

ANYWHERE = {"_C", "_distributed_c10d", "_dynamo"}
"""Future has no public name; those of stores and buckets are not exported to type checkers; and
``torch._dynamo.config`` is the documented way to the compiler's settings."""


def private_names(path: Path) -> set[str]:
    """Return the private names of torch in a module, and those of the table, wherever they are."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            is_torch = ast.unparse(node).startswith(("torch.", "dist."))
            if node.attr in HOMES or (is_torch and node.attr.startswith("_")):
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found |= {name for name in names if name.startswith("_")}
        elif isinstance(node, ast.Constant) and node.value in HOMES:
            found.add(node.value)
    return {name for name in found if not name.startswith("__")} - ANYWHERE


def test_each_private_name_has_one_home() -> None:
    """Which says what is done where torch has no such thing; a new one belongs into the table."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for name in private_names(path):
            found.setdefault(name, set()).add(str(path.relative_to(PACKAGE)))
    assert found == {name: {home} for name, home in HOMES.items()}


def test_without_the_engines_names_nothing_is_known_of_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls count as those of a backward pass whose end is not seen, and buckets as they say."""
    bucket = FakeBucket([torch.zeros(1)], is_last=False)
    monkeypatch.setattr(slots, "current_node", None)
    monkeypatch.setattr(backward, "queue_callback", None)
    for _ in range(2):
        assert not backward.at_pass_end(bool)
        assert not slots.is_unnumbered(bucket)
        for module in (backward, slots):
            monkeypatch.setattr(module, "graph_task_id", None)
    monkeypatch.setattr(slots, "current_pass", lambda: -1)
    assert slots.in_backward(bucket)
    with Tracer() as tracer:
        Job(tracer).step()
        assert len(tracer.steps()) == 1
