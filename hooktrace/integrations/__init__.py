"""hooktrace where the training loop is somebody else's: scripts, launchers, frameworks, trackers.

    hooktrace run train.py        run.py ----------------------+
    opentelemetry-instrument ...  opentelemetry.py ------------+--> start.begin(), without torch
    a child of one of these       python_path/sitecustomize.py +      |
                                                                      v
    the script imports torch --> its DDP is patched --> models.py: a Dispatcher for each model
      --> its traced hook, as the script registers it, or else DDP's own average
      failing_hooks.py: torch's hooks that fail on gloo
      tuning.py: in a job that hooktrace tune has started, hooks that take turns
    it imports torch's FSDP2 --> sharded.py: a sharded model is traced when it is first called
    the process ends --> ending.py: a summary on rank 0, or why there is none

    frameworks, each a module that only its users import:
      accelerate.py  lightning.py  transformers.py    one to three lines --> tracing.instrument
    trackers.py                   log_to(fn): a flat dict of numbers, every so many steps

In: environment variables and a script, or a framework's own objects.  Out: what a tracer gives, and
a few lines on standard error.  The script's results, exceptions and exit code are its own.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
"""The public names, in the one place where they are listed."""
