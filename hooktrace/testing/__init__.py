"""Parts for tests of hooks, and of what reads their records.

    check/        ``check_hook`` runs a hook on real ranks and says what is wrong with it
    fakes.py      ``FakeBucket`` and ``FakeClock`` are told what to be, without a process group
    synthetic.py  records and files of a made-up job, without torch

What DDP does with a hook shows only in real processes, and that is what ``check_hook`` looks at.
The names are imported when they are first used, so that ``synthetic`` needs no torch.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
