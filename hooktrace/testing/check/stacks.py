"""Where a hook's code stood: read from a traceback, or from faulthandler's dump of all threads."""

from __future__ import annotations

import re
from pathlib import Path

from ...staging.backward import ENGINE

_PACKAGE = Path(__file__).resolve().parents[2]
_DUMP = re.compile(r"^(?=Timeout \(|Fatal Python error|Current thread 0x|Thread 0x)", re.MULTILINE)
_FRAME = re.compile(r'^ *File "(.*)", line (\d+),? in (.*)$', re.MULTILINE)
_PLUMBING = re.compile(
    r"/lib/python3[.\d]*/(?!(site|dist)-packages/)"
    r"|/torch/(?!distributed/algorithms/(ddp_comm_hooks|model_averaging)/)"
    rf"|^{re.escape(str(_PACKAGE))}/(?!hooks/)"
    r"|^<(frozen|string)"
)
"""Files of frames that are not of a hook."""


def split(output: str) -> tuple[str, str]:
    """Return what a rank printed, and the dump of its stacks after that."""
    words, *dump = _DUMP.split(output, 1)
    # A fatal error's stacks are followed by a list of extension modules.
    return words, "".join(dump).partition("\nExtension modules:")[0].strip()


def places(stacks: str) -> list[str]:
    """Return the places in hooks, as ``function (file:line)``, that a traceback or a dump lists."""
    return [
        f"{function} ({file.rpartition('/')[2]}:{line})"
        for file, line, function in _FRAME.findall(stacks)
        if not _PLUMBING.search(file)
    ]


def where(dump: str) -> str:
    """Return in a few words where a rank's threads stand, by its dump."""
    if not dump:
        return "no stacks"
    waits = "in backward(), which waits for the hook's future"
    nowhere = waits if ENGINE in dump else "no code of the hook runs"
    threads = [places(stack)[:1] for stack in _DUMP.split(dump)]
    return ", ".join(dict.fromkeys(f"in {place}" for own in threads for place in own)) or nowhere
