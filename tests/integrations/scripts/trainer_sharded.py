"""FSDP2 through transformers' Trainer: ``trainer_sharded.py FILE HOW ...`` writes what it trained.

HOW, one after another: ``plainly``, which knows of transformers alone and is what is written, or
``by-hand``, with a hook of hooktrace's.
"""

import gc
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

FILE, HOWS = Path(sys.argv[1]).resolve(), sys.argv[2:]
facts: dict[str, object] = {}


class ByHand(TrainerCallback):
    """Traces the model where the Trainer has just prepared it."""

    trainer: Trainer

    def on_train_begin(self, args, state, control, **_):
        import hooktrace
        from hooktrace.integrations.transformers import TraceCallback

        try:
            TraceCallback(self.trainer, None, None, None, False).on_train_begin(
                args, state, control
            )
        except TypeError as error:
            facts["refused"] = str(error)
        hooktrace.fsdp.trace(
            self.trainer.model_wrapped,
            name="by hand",
            reduce_scatter=hooktrace.fsdp.hooks.bf16_reduce_scatter(),
        )


texts = [torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(i)) for i in range(96)]
data = [{"input_ids": text, "labels": text} for text in texts]


def train(how: str) -> None:
    arguments = TrainingArguments(
        output_dir=str(FILE.with_suffix(f".{how}")), use_cpu=True, per_device_train_batch_size=2,
        gradient_accumulation_steps=2, max_steps=12, save_steps=6, logging_steps=6,
        eval_strategy="steps", eval_steps=4, disable_tqdm=True, report_to=[], seed=0,
        fsdp=True,
        fsdp_config={
            "version": 2,
            "transformer_layer_cls_to_wrap": ["GPT2Block"],
            "cpu_ram_efficient_loading": False,
        },
    )  # fmt: skip
    # On CPUs Accelerate passes its plugin over, and makes a DDP model.
    PartialState()._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2)
    trainer = Trainer(
        GPT2LMHeadModel(config), arguments, train_dataset=data, eval_dataset=data[:8],
        callbacks=[ByHand()] if how == "by-hand" else [],
    )  # fmt: skip
    ByHand.trainer = trainer
    trainer.train()
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    trained = get_model_state_dict(trainer.model, options=whole)
    if dist.get_rank() == 0 and how == "plainly":
        bits = torch.cat([value.flatten() for value in trained.values()])
        FILE.write_bytes(bits.numpy().tobytes())
    facts["optimizer steps"] = trainer.state.global_step
    dist.barrier()
    del trainer, ByHand.trainer
    gc.collect()  # or gloo may abort at the end, with or without hooktrace


for how in HOWS:
    train(how)
if dist.get_rank() == 0:
    print(json.dumps(facts), flush=True)
dist.destroy_process_group()
