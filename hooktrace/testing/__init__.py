"""Parts for tests of hooks, and of what reads their records.

    a hook --check/--> ``check_hook`` runs it on real ranks and says what is wrong with it
    FakeBucket, FakeClock (fakes.py) --> a hook, or a tracer, without a process group or time
    SyntheticJob --synthetic.py, without torch--> records and files of a made-up job
      synthetic_hangs.py   of one that hangs
      synthetic_shards.py  of a sharded model
    ranks.py        a function on ranks of this machine, for the check, the demo and bench

What DDP does with a hook shows only in real processes, and that is what ``check_hook`` looks at.
The names are imported when they are first used, so that ``synthetic`` needs no torch.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
