"""All hooks and wrappers that Accelerate knows, on two gloo ranks: which train as they should."""

import itertools
import json

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DDPCommunicationHookType as Type
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import hooks
from hooktrace.integrations.accelerate import DDPKwargs

OPTION = {"start_powerSGD_iter": 2}
HOOKS = {
    Type.NO: None,
    Type.FP16: hooks.fp16_compress_hook,
    Type.BF16: hooks.bf16_compress_hook,
    Type.POWER_SGD: hooks.powerSGD_hook,
    Type.BATCHED_POWER_SGD: hooks.batched_powerSGD_hook,
}
WRAPPERS = {
    Type.NO: lambda hook: hook,
    Type.FP16: hooks.fp16_compress_wrapper,
    Type.BF16: hooks.bf16_compress_wrapper,
}


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))


def train(model: torch.nn.Module) -> torch.Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def is_as_by_hand(
    kind: Type, wrapper: Type, tracer: hooktrace.Tracer, asked: object = None
) -> bool:
    """Return whether Accelerate trains as plain DDP does with the hook that is meant."""
    option = OPTION if "power" in str(kind) else {}
    ddp = DistributedDataParallel(make_model(), bucket_cap_mb=0.02)
    if kind is not Type.NO:
        state = hooks.PowerSGDState(None, **OPTION) if option else None
        ddp.register_comm_hook(state, WRAPPERS[wrapper](HOOKS[kind]))
    kwargs = DDPKwargs(
        comm_hook=asked or kind, comm_wrapper=wrapper, comm_state_option=option,
        bucket_cap_mb=0.02, tracer=tracer,
    )  # fmt: skip
    model = Accelerator(cpu=True, kwargs_handlers=[kwargs]).prepare(make_model())
    assert len(kwargs.states) == bool(option)
    return torch.equal(train(model), train(ddp))


def main() -> None:
    Accelerator(cpu=True)  # makes the process group
    facts: dict[str, object] = {}
    with hooktrace.Tracer(error_every=0) as tracer:
        for kind, wrapper in itertools.product(HOOKS, WRAPPERS):
            facts[f"{kind} {wrapper}"] = is_as_by_hand(kind, wrapper, tracer)
        for asked in ("fp16", hooks.fp16_compress_hook):
            facts[f"{asked}"] = is_as_by_hand(Type.FP16, Type.NO, tracer, asked)
        facts["steps"] = len(tracer.steps())
        facts["anomalies"] = [a.message for a in tracer.anomalies()]
    for wrong in ({"comm_hook": "top_k"}, {"comm_wrapper": "power_sgd"}):
        try:
            DDPKwargs(**wrong)
        except ValueError as error:
            facts[f"refused {next(iter(wrong))}"] = str(error)
    if dist.get_rank() == 0:
        print(json.dumps(facts))
    hooktrace.shutdown()


main()
