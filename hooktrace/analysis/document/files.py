"""A document as a file; what cannot be written is a ``UsageError``, before any work is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...records.errors import UsageError
from .tree import Node


def check_writable(path: Path) -> None:
    """Raise ``UsageError`` where a file cannot be made at ``path``, before any work is done."""
    existed = path.exists()
    with writing(path), path.open("ab"):
        pass
    if not existed:
        path.unlink()


def write_page(path: Path, title: str, nodes: Iterable[Node]) -> None:
    """Write a document as one HTML file; raises ``UsageError`` where that cannot be."""
    from .html import page  # Jinja2, which a terminal does without

    with writing(path):
        path.write_text(page(title, nodes), encoding="utf-8")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``UsageError`` for what goes wrong while ``path`` is written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; pass a file in another directory, one that "
            "you may write"
        ) from error
