"""The standard DDP communication hooks under torch's names, staged, one family a file."""

from __future__ import annotations

from .default import allreduce_hook, bf16_compress_hook, fp16_compress_hook

__all__ = ["allreduce_hook", "bf16_compress_hook", "fp16_compress_hook"]
