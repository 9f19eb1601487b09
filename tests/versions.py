"""What a version of torch cannot do by itself, so that no test can ask it of hooktrace."""

from __future__ import annotations

import torch

_TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

HOOKS_GROUPS = hasattr(torch._C._distributed_c10d.ProcessGroup, "register_post_hook")
"""Whether process groups take hooks around each collective: from 2.14 on."""

FINALISES_BY_HAND = hasattr(
    torch.nn.parallel.DistributedDataParallel, "require_manual_backward_finalization"
)
"""Whether DDP can be told when to wait for its buckets, and to make them late: from 2.15 on."""

FAKES_COLLECTIVES = _TORCH >= (2, 13)
"""Whether collectives run over fake tensors, as the device that is not there needs them to."""

REFUSES_BF16 = torch.version.cuda is None and torch.version.hip is None
"""Whether DDP refuses hooks by torch's names of its bf16 hooks: a build for CPUs does."""

KEEPS_SHARDS = _TORCH >= (2, 13)
"""Whether FSDP2 keeps its parameter groups where hooktrace asks for them."""

OF_SHARDS = (
    "dashboards/test_queries.py",
    "device/test_torch_waits.py",
    "device/test_units.py",
    "distributed/test_check_units.py",
    "distributed/test_fsdp.py",
    "distributed/test_run_sharded.py",
    "distributed/test_sharded_edges.py",
    "distributed/test_sharded_hangs.py",
    "distributed/test_unit_probes.py",
    "fsdp/test_trace.py",
)
"""The tests that need them, by file: some cannot even be imported without."""
