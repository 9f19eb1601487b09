"""The standard DDP communication hooks under torch's names, staged, one family a file.

In: a hook's state and a bucket of gradients, from DDP.  Out: operations for the driver
(``staging``), and the bucket's result.  The names are in ``__init__.pyi``; a hook, and torch, is
imported when it is first used.

    default.py                 averages, as they are or as 16-bit numbers, or none
    quantization.py            averages of bytes
    powersgd.py                low-rank: lowrank.py, powersgd_factors.py; its state:
                               powersgd_settings.py, powersgd_state.py, and torch's:
                               powersgd_theirs.py; saved: powersgd_saved.py
    local_sgd.py, gossip.py    not over all ranks
      catalogue.py             all of these: one HookEntry each, registered by name
      sharded.py               those for FSDP2, which are in hooktrace.fsdp.hooks
    hooks made of others: wrappers.py (casts, two functions), optimizer.py (the optimizer's step in
    the callback), zero.py (torch's own)
"""

from __future__ import annotations

import lazy_loader

# At once: the catalogue needs no torch, and its function has the name of its module.
from .catalogue import catalogue as catalogue

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
