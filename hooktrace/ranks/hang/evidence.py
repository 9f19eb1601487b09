"""What the interpreter tells of this process's threads: where each is, what it waits for.

    sys._current_frames, sys._current_exceptions, bytecode --> ThreadStack, one a thread

Nothing is imported, read from a disk or waited for here: what the threads wait for must not stop
the one that looks.  Nor is ``frame.f_locals`` read: on Python up to 3.12 it leaves a copy in the
frame, which keeps a batch or the model alive.  All that is returned is text, and bounded.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
import threading
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch

from ...staging.backward import ENGINE

MOST_THREADS = 64
_MOST_FRAMES = 48
_OUTERMOST = 8
"""Of a stack that is deeper, so many of its outer frames are shown."""
_MOST_CHARACTERS = 200

_HOOKTRACE = str(Path(__file__).parents[2])
_TORCH = str(Path(torch.__file__).parent)  # as frames name it, not where links lead
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = "-packages/"
"""In the paths of all libraries: site-packages, dist-packages."""

_BOOTSTRAP = "_bootstrap"
"""The outermost frame of a thread that Python started."""

_CONTROL_FLOW = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty", "Full")
"""Exceptions that say that something has ended, not that anything went wrong."""


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one thread is.

    ``frames``: "file:line function", the innermost last.  ``where``: the innermost one of the
    user's own code, if there is one, by its file's name alone.  ``doing``: see ``_DOING``.
    ``collective``: the one of torch's that it is in, or "".  ``exception``: what the user's code
    raised and handles now, or "".  ``foreign``: it was not started by Python, as the threads of
    gloo's callbacks; ``waits``: the line that such a thread is at calls something's ``wait``.
    """

    name: str
    ident: int
    frames: tuple[str, ...]
    where: str
    doing: tuple[str, ...] = ()
    collective: str = ""
    exception: str = ""
    foreign: bool = False
    waits: bool = False

    def text(self) -> str:
        """Return the stack as people read it."""
        said = f", handles {self.exception}" if self.exception else ""
        lines = [f"thread {self.name!r}{said}", *(f"  {frame}" for frame in self.frames)]
        return "\n".join(lines)


NOWHERE = ThreadStack(name="", ident=0, frames=(), where="")
"""A thread of which nothing is known."""


def stacks(lasting: Collection[int] = ()) -> list[ThreadStack]:
    """Return the stacks of all threads but the one that asks.

    ``lasting``: exceptions, by ``id``, that are not told.
    """
    own = threading.get_ident()
    names = {thread.ident: thread.name for thread in list(threading.enumerate())}
    exceptions = {i: _raised(one) for i, one in handled().items() if id(one) not in lasting}
    frames = {i: f for i, f in sys._current_frames().items() if i != own}
    main_first = sorted(frames.items(), key=lambda one: one[0] != threading.main_thread().ident)
    return [
        _stack(ident, frame, exceptions.get(ident, ""), names.get(ident))
        for ident, frame in main_first[:MOST_THREADS]
    ]


def _stack(ident: int, frame: FrameType, exception: str, name: str | None) -> ThreadStack:
    inner_first = [one for one, _ in traceback.walk_stack(frame)]
    outermost = inner_first[-1].f_code
    foreign = ident != threading.main_thread().ident and outermost.co_name != _BOOTSTRAP
    doing, collective = _doings(inner_first)
    return ThreadStack(
        name=_cut(name or f"thread {ident} of native code"),
        ident=ident,
        frames=tuple(_shown(inner_first)),
        where=_where(inner_first),
        doing=tuple(doing),
        collective=collective,
        exception=exception,
        foreign=foreign,
        waits=foreign and _calls_wait(frame),
    )


def _calls_wait(frame: FrameType) -> bool:
    """Return whether the line that a frame is at calls something's ``wait``.

    By its code alone: the file system that has the source may be what the thread waits for.
    """
    code = dis.get_instructions(frame.f_code)
    lines = (one.positions and one.positions.lineno for one in code if one.argval == "wait")
    return frame.f_lineno in lines


def _shown(inner_first: list[FrameType]) -> list[str]:
    """Return the frames as text, the outermost first, and how many were left out."""
    shown = [
        _cut(f"{code.co_filename.rpartition(_INSTALLED)[2]}:{frame.f_lineno} {code.co_name}")
        for frame in reversed(inner_first)
        for code in [frame.f_code]
    ]
    left_out = len(shown) - _MOST_FRAMES
    if left_out > 0:
        shown[_OUTERMOST : _OUTERMOST + left_out] = [f"... {left_out} frames ..."]
    return shown


def _where(inner_first: list[FrameType]) -> str:
    """Return where a thread is: its innermost frame that is neither a library's nor hooktrace's."""
    users = next((f for f in inner_first if is_users(f.f_code.co_filename)), inner_first[0])
    code = users.f_code
    return _cut(f"{Path(code.co_filename).name}:{users.f_lineno} {code.co_name}")


def is_users(filename: str) -> bool:
    """Return whether a file is neither torch's, the standard library's nor hooktrace's."""
    if filename.startswith("<"):
        return False
    if filename.startswith((_TORCH + "/", _HOOKTRACE + "/")):
        return False
    return _INSTALLED in filename or not filename.startswith(_STANDARD)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


_DOING = (
    ("ending", f"{_HOOKTRACE}/staging/job.py", {"shutdown"}),
    ("ending", f"{_TORCH}/distributed/distributed_c10d.py", {"destroy_process_group"}),
    ("ending", f"{_STANDARD[0]}/threading.py", {"_shutdown"}),
    ("backward", f"{_TORCH}/autograd/", {ENGINE, "backward", "grad"}),
    ("saving", f"{_TORCH}/serialization.py", {"save"}),
    ("saving", f"{_TORCH}/distributed/checkpoint/", {"save", "async_save"}),
    ("compiling", f"{_TORCH}/_dynamo/", {"_compile", "compile_inner"}),
    ("compiling", f"{_TORCH}/_inductor/", {"compile_fx"}),
    ("importing", f"{_TORCH}/", {"<module>"}),
    ("probe", f"{_HOOKTRACE}/probes/", None),
    ("probe", f"{_HOOKTRACE}/ranks/private_group.py", None),
)
"""What a frame of a library says of what its thread does: file, or folder, and functions."""

_C10D = f"{_TORCH}/distributed/distributed_c10d.py"
_NO_COLLECTIVES = {"init_process_group", "destroy_process_group", "wait"}
"""Public functions there, in which a thread may stand, too."""
_DDP = f"{_TORCH}/nn/parallel/distributed.py"


def _doings(inner_first: Iterable[FrameType]) -> tuple[list[str], str]:
    """Return what a thread does, the innermost last, and the collective of torch's it is in."""
    found: list[str] = []
    collective = ""
    for frame in inner_first:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if not (found or collective):
            is_public = not name.startswith("_") and name not in _NO_COLLECTIVES
            collective = name if file == _C10D and is_public else ""
            if file == _DDP and name == "_sync_buffers":
                collective = "broadcast"
        for doing, path, names in _DOING:
            is_one = file.startswith(path) and (names is None or name in names)
            if is_one and doing not in found:
                found.append(doing)
    return found[::-1], collective


def handled() -> dict[int, Any]:
    """Return what each thread handles now, ``None`` for nothing."""
    every: dict[int, Any] = sys._current_exceptions()
    # Python 3.11: three of them.
    return {i: one[1] if isinstance(one, tuple) else one for i, one in every.items()}


def _raised(error: Any) -> str:
    """Return what a thread raised and handles in the user's code: "ValueError: x at a.py:3"."""
    if not isinstance(error, BaseException) or type(error).__name__ in _CONTROL_FLOW:
        return ""
    trace = error.__traceback__
    if trace is None or not is_users(trace.tb_frame.f_code.co_filename):
        return ""  # a library's own try: none of the user's
    files = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace))
    *_, (file, line) = [one for one in files if is_users(one[0])]
    try:
        said = str(error).partition("\n")[0]
    except Exception:  # of the user's own exception
        said = ""
    named = type(error).__name__ + (f": {said}" if said else "")
    return f"{_cut(named)} at {Path(file).name}:{line}"
