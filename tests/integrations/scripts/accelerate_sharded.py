"""FSDP2 through Accelerate: ``accelerate_sharded.py FILE HOW ...`` writes what it trained plainly.

HOW, one after another: ``plainly``, which knows of Accelerate alone, ``by-hand``, with a hook of
hooktrace's, or ``as-it-is``, without telling Accelerate that it is on a device.
"""

import gc
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FILE, HOWS = Path(sys.argv[1]).resolve(), sys.argv[2:]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.head = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def main(how: str) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if how != "as-it-is":
        # On CPUs Accelerate passes its plugin over, and makes a DDP model.
        PartialState(cpu=True)._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        fsdp_plugin=FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["Block"],
            cpu_ram_efficient_loading=False,
            state_dict_type="SHARDED_STATE_DICT",
        ),
    )
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(192, 64)), batch_size=8)
    model, optimizer, data = accelerator.prepare(net, optimizer, data)
    if how == "by-hand":
        import hooktrace

        hooktrace.fsdp.trace(
            model, name="by hand", reduce_scatter=hooktrace.fsdp.hooks.bf16_reduce_scatter()
        )
    for number, (batch,) in enumerate(data):
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        if number % 4 == 3:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()
        if number == 5:
            accelerator.save_state(str(FILE.with_suffix(f".{how}")))
            accelerator.get_state_dict(model)
    trained = accelerator.get_state_dict(model)
    if accelerator.is_main_process and how == "plainly":
        bits = torch.cat([value.flatten() for value in trained.values()])
        FILE.write_bytes(bits.numpy().tobytes())
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    del model, net, optimizer
    gc.collect()  # or gloo may abort at the end, with or without hooktrace


if __name__ == "__main__":
    for how in HOWS:
        main(how)
    PartialState().destroy_process_group()
