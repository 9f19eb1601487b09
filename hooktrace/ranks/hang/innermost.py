"""What the innermost frame of a thread is in: a function of native code, a lock.

    bytecode up to where the frame stands --> names of what it calls, or enters by ``with``

Source files are not read: a file system that does not answer may be what the thread waits for.
"""

from __future__ import annotations

import dis
import threading
from types import FrameType
from typing import Any

_ENTERS = ("BEFORE_WITH", "LOAD_SPECIAL")
"""How a ``with`` statement calls ``__enter__``, by versions of Python."""
_PADDING = {"CACHE", "PRECALL"}
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def called(frame: FrameType) -> str:
    """Return the function that a frame calls now, by its name; "" where it calls none.

    Of an innermost frame that is one of native code, which has no frame of its own.
    """
    before = _until_now(frame)
    if not before or not before[-1].opname.startswith("CALL"):
        return ""
    names = _names(before[:-1], _start(before[-1]))
    return names[-1] if names else ""


def lock_waited_for(frame: FrameType) -> Any:
    """Return the lock that a frame is about to take, ``None`` where it is not known to.

    Nothing of the user's runs for that: only a lock that has a name, ``a`` or ``a.b``, is found.
    """
    before = _until_now(frame)
    names: list[str] = []
    if before and before[-1].opname.startswith("CALL"):
        *names, last = _names(before[:-1], _start(before[-1])) or [""]
        names = names if last in {"acquire", "__enter__"} else []
    elif len(before) > 1 and before[-1].opname.startswith(_ENTERS):
        names = _names(before[:-1], _start(before[-2]))
    found = _value(frame, names)
    return found if isinstance(found, _LOCKS) else None


def _until_now(frame: FrameType) -> list[dis.Instruction]:
    """Return a frame's instructions up to the one that it executes."""
    before = []
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti:
            break
        if instruction.opname not in _PADDING:
            before.append(instruction)
    return before


def _names(before: list[dis.Instruction], start: tuple[int | None, int | None]) -> list[str]:
    """Return the names that make up ``a.b.c``, which begins at ``start``, as three.

    The instructions that load them all begin where the expression does, those of arguments later.
    """
    names: list[str] = []
    for instruction in reversed(before):
        is_load = instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str)
        if is_load and _start(instruction) == start:
            names.insert(0, instruction.argval)
            if not instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                break
    return names


def _start(instruction: dis.Instruction) -> tuple[int | None, int | None]:
    positions = instruction.positions
    return (None, None) if positions is None else (positions.lineno, positions.col_offset)


def _value(frame: FrameType, names: list[str]) -> Any:
    """Return what ``a.b.c`` is in a frame, without running anything of the user's."""
    if not names:
        return None
    first, *others = names
    found = frame.f_locals.get(first, frame.f_globals.get(first))
    for name in others:
        found = getattr(found, "__dict__", {}).get(name)
    return found
