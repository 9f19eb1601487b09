"""transformers' Trainer, traced: ``torchrun --nproc-per-node 2 examples/transformers_trainer.py``.

It accumulates gradients over two batches, and goes on from a checkpoint.
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import hooktrace
from hooktrace.integrations.transformers import trace

texts = [torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(i)) for i in range(96)]
data = [{"input_ids": text, "labels": text} for text in texts]
tracer = hooktrace.Tracer()


def make_trainer(folder: str, steps: int) -> Trainer:
    """Return a trainer of a small language model."""
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=not torch.accelerator.is_available(),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        max_steps=steps,
        save_steps=20,
        logging_steps=10,
        disable_tqdm=True,
        report_to=[],
        seed=0,
    )
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2)
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data)
    trace(trainer, hooktrace.hooks.fp16_compress_hook, tracer=tracer)
    return trainer


with tempfile.TemporaryDirectory() as own:
    folders = [own]
    trainer = make_trainer(own, 20)
    torch.distributed.broadcast_object_list(folders)  # all ranks go on from rank 0's checkpoint
    trainer.args.output_dir = folders[0]
    trainer.train()
    trainer = make_trainer(folders[0], 40)
    trainer.train(resume_from_checkpoint=True)
    torch.distributed.barrier()
if trainer.is_world_process_zero():
    print(*tracer.summary())
    steps = [step.step for step in tracer.steps()]
    print(f"steps {steps[0]} to {steps[-1]}, {len(steps)} of them")
    logged = [entry for entry in trainer.state.log_history if "hooktrace/step_seconds" in entry]
    print(f"logged by the trainer: {sorted(logged[-1])}")
tracer.close()
del trainer
hooktrace.shutdown()
