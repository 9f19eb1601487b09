"""One rank: runs the scenarios named on its command line and writes each one's result."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import hooktrace


def main() -> None:
    """Run ``module:function`` scenarios of this folder in order."""
    directory, names = Path(sys.argv[1]), sys.argv[2:]
    rank = int(os.environ["RANK"])
    (directory / f"pid.{rank}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for name in names:
        module, function = name.split(":")
        try:
            value = importlib.import_module(f"tests.distributed.{module}")
            outcome = (False, getattr(value, function)(rank))
        except Exception:
            outcome = (True, traceback.format_exc())
        target = directory / f"{name}.{rank}"
        partial = directory / f"{name}.{rank}.partial"
        partial.write_bytes(pickle.dumps(outcome))
        partial.rename(target)
        dist.barrier()
    hooktrace.shutdown()
    (directory / f"pid.{rank}").unlink()


if __name__ == "__main__":
    main()
