"""Accelerate with PowerSGD, traced: ``torchrun --nproc-per-node 2 examples/accelerate_ddp.py``.

A run that is stopped after half of its steps and one that goes on from the checkpoint end with the
same weights as one that is not stopped.
"""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import DDPCommunicationHookType

import hooktrace
from hooktrace.integrations.accelerate import DDPKwargs

tracer = hooktrace.Tracer()
kwargs = DDPKwargs(
    comm_hook=DDPCommunicationHookType.POWER_SGD,
    comm_state_option={"start_powerSGD_iter": 2, "matrix_approximation_rank": 2},
    bucket_cap_mb=1,
    tracer=tracer,
)
accelerator = Accelerator(
    cpu=not torch.accelerator.is_available(),
    kwargs_handlers=[kwargs],
    gradient_accumulation_steps=2,
)
torch.manual_seed(0)
layers = torch.nn.Sequential(*(torch.nn.Linear(320, 320) for _ in range(6)))
model, optimizer = accelerator.prepare(layers, torch.optim.SGD(layers.parameters(), lr=0.05))
accelerator.register_for_checkpointing(kwargs)  # the residuals of all ranks


def train(first: int, last: int) -> torch.Tensor:
    """Return all weights after these batches."""
    for batch in range(first, last):
        with accelerator.accumulate(model):
            torch.manual_seed(1000 * batch + accelerator.process_index)
            data = torch.randn(32, 320, device=accelerator.device)
            accelerator.backward(model(data).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


train(0, 24)
with tempfile.TemporaryDirectory() as own:
    folder = accelerator.gather_for_metrics([own], use_gather_object=True)[0]
    accelerator.save_state(folder)
    whole = train(24, 48)
    accelerator.load_state(folder)
    resumed = train(24, 48)
    accelerator.wait_for_everyone()
if accelerator.is_main_process:
    print(tracer.summary()[0])
    print(f"resumed as if it had not stopped: {torch.equal(whole, resumed)}")
tracer.close()
model, optimizer = accelerator.free_memory(model, optimizer)
hooktrace.shutdown()
