"""FSDP2: the collectives of a sharded model, recorded by unit.

    fully_shard(model) --trace--> every FSDPModule's all-gather, reduce-scatter, all-reduce
       torch_groups.py   what torch calls private of its groups, and nobody else reads
       torch_waits.py    where a device's computing stream waits for them
       comms.py          what is in the place of a group's collectives while it is traced
         replicas.py     over replicas
       hooks.py          reduce-scatters and all-gathers that send less
       probe.py          what they lose, on sampled steps that all ranks agree on

In: a model that ``fully_shard`` was called for.  Out: the calls of its collectives, a step at a
time.  What is recorded goes the way of every other record: ``staging/units.py`` has the steps.
"""

from __future__ import annotations

from .trace import TracedModel as TracedModel
from .trace import trace as trace

__all__ = ["TracedModel", "trace"]
