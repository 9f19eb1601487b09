"""hooktrace: instrumentation and debugging for PyTorch DDP communication hooks.

The public names are listed in ``__init__.pyi`` and imported when they are first used, so that
``hooktrace.records`` and whatever else needs no torch can be imported without it.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
