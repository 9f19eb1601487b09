"""FSDP2 in a loop of Ray Train's: ``ray_sharded.py FOLDER`` leaves records, and says what it saw.

Under ``ray_on_loopback.py``.  A model is trained as it is, traced, and traced with a hook, one
after another.
"""

import json
import sys

import ray.train
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hooktrace
from hooktrace.exporters import RecordFileExporter


def train(config: dict[str, str]) -> None:
    facts: dict[str, object] = {}
    try:
        prepare_model(nn.Linear(8, 8), parallel_strategy="fsdp")
    except RuntimeError as error:
        facts["FSDP1"] = str(error)
    with hooktrace.Tracer([RecordFileExporter(config["folder"])], error_every=0) as tracer:
        plain = trained(None)
        traced = trained(tracer, "traced")
        trained(tracer, "bf16", reduce_scatter=hooktrace.fsdp.hooks.bf16_reduce_scatter())
    facts["same bits"] = torch.equal(plain, traced)
    if dist.get_rank() == 0:
        print(json.dumps(facts))
    hooktrace.shutdown()


def trained(tracer: hooktrace.Tracer | None, name: str = "", **hooks: object) -> torch.Tensor:
    """Return the parameters after six steps with an evaluation and a state dict between."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))).to(get_device())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if tracer is not None:
        hooktrace.fsdp.trace(model, tracer=tracer, name=name, **hooks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + dist.get_rank())
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step == 2:
            with torch.no_grad():
                model(torch.randn(8, 64))
            get_state_dict(model, optimizer)
            ray.train.report({"step": step})
    return torch.cat([p.full_tensor().flatten() for p in model.parameters()]).detach()


TorchTrainer(
    train,
    train_loop_config={"folder": sys.argv[1]},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=f"{sys.argv[1]}/ray"),
).fit()
