"""Where a rank stands: faulthandler's dump of all threads, read back."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from pathlib import Path

from ...staging.backward import ENGINE

_PACKAGE = Path(__file__).resolve().parents[2]
_BEGINS = re.compile(
    r"^(?:Timeout \(|Fatal Python error|Current thread 0x|Thread 0x)", re.MULTILINE
)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$', re.MULTILINE)
_PLUMBING = re.compile(
    r"/lib/python3[.\d]*/(?!(site|dist)-packages/)"
    r"|/torch/(?!distributed/algorithms/(ddp_comm_hooks|model_averaging)/)"
    rf"|^{re.escape(str(_PACKAGE))}/(?!hooks/)"
    r"|^<(frozen|string)"
)
"""Files of frames that say nothing of the hook: the innermost other one does."""


def split(output: str) -> tuple[str, str]:
    """Return what a rank printed, and the dump of its stacks after that."""
    found = _BEGINS.search(output)
    if found is None:
        return output, ""
    # A fatal error's stacks are followed by a list of extension modules.
    dump = output[found.start() :].partition("\nExtension modules:")[0]
    return output[: found.start()], dump.strip()


def where(dump: str) -> str:
    """Return in one line where the threads of a dump stand; empty for an empty dump."""
    seen: Counter[str] = Counter()
    for thread in _THREAD.split(dump)[1:]:
        frames = _FRAME.findall(thread)
        own = [_said(*frame) for frame in frames if not _PLUMBING.search(frame[0])]
        if not own and any(function == ENGINE for _, _, function in frames):
            own = ["backward(), which waits for the hook's future"]
        seen.update(own[:1])
    parts = [f"in {place}" if n == 1 else f"{n} threads in {place}" for place, n in seen.items()]
    return ", ".join(parts) or "no code of the hook runs" * bool(dump)


def place_of(error: BaseException) -> str:
    """Return where in its own code a hook raised; empty if that is not known."""
    found = ""
    seen: BaseException | None = error
    while seen is not None:
        for frame in traceback.extract_tb(seen.__traceback__):
            if not _PLUMBING.search(frame.filename):
                found = _said(frame.filename, str(frame.lineno), frame.name)
        seen = seen.__cause__ or seen.__context__
    return found


def _said(file: str, line: str, function: str) -> str:
    return f"{function} ({file.rpartition('/')[2]}:{line})"
