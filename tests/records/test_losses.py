"""What was lost has one table, which all that counts or tells of losses follows."""

from __future__ import annotations

import re
from pathlib import Path

import hooktrace
from hooktrace.records.losses import LOSSES

PACKAGE = Path(hooktrace.__file__).parent

_COUNTED = re.compile(
    r"""(?:losses\.add|self\.add|Loss|cls)\(\s*"(\w+)"|"(\w+)": ring\.|Counter\(\{"(\w+)":"""
)


def test_every_reason_that_is_counted_has_its_row() -> None:
    """So that it is warned of, counted from 0 on and in the docs; and no row is of nothing."""
    texts = [
        path.read_text("utf-8")
        for part in ("staging", "probes", "tracing", "fsdp")
        for path in (PACKAGE / part).rglob("*.py")
    ]
    counted = {name for text in texts for pair in _COUNTED.findall(text) for name in pair if name}
    assert counted == set(LOSSES)
