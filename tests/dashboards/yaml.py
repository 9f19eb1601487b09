"""The little of YAML that the examples in ``dashboards/`` are written in, read without a package.

Mappings and lists in blocks, lists in brackets, empty braces, and strings.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import Any

from . import rules

_KEY = re.compile(r"([\w.\"/-]+):(?: +(.*))?$")

Lines = deque[tuple[int, str]]


def read(path: Path) -> Any:
    """Return a file's content; raises ``ValueError`` at a line that is none of the above."""
    lines = [line for line in rules.code(path).splitlines() if line.strip()]
    waiting = deque((len(line) - len(line.lstrip()), line.strip()) for line in lines)
    found = _block(waiting)
    if waiting:
        raise ValueError(f"{path.name}: {waiting[0][1]}")
    return found


def _block(lines: Lines) -> Any:
    indent, text = lines[0]
    if text.startswith("- "):
        return _list(lines, indent)
    if _KEY.match(text):
        return _mapping(lines, indent)
    return _scalar(lines.popleft()[1])


def _list(lines: Lines, indent: int) -> list[Any]:
    items = []
    while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
        item = lines.popleft()[1][2:]
        lines.appendleft((indent + 2, item))
        items.append(_block(lines))
    return items


def _mapping(lines: Lines, indent: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while lines and lines[0][0] == indent:
        match = _KEY.match(lines.popleft()[1])
        if match is None or match[1] in found:
            raise ValueError(f"no key, or one that was there: {match and match[1]}")
        deeper = bool(lines) and (lines[0][0] > indent or _is_list_of(lines, indent))
        found[match[1]] = _scalar(match[2]) if match[2] else _block(lines) if deeper else None
    return found


def _is_list_of(lines: Lines, indent: int) -> bool:
    return lines[0][0] == indent and lines[0][1].startswith("- ")


def _scalar(text: str) -> Any:
    if text.startswith("["):
        return [_scalar(part.strip()) for part in text.strip("[]").split(",")]
    return {} if text == "{}" else text.strip("\"'")
