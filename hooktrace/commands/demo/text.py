"""Text that every Python has: the source of its standard library, as character codes."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

VOCABULARY = 128
"""Characters are ASCII codes; the few others in the source become ``?``."""


def read_corpus(directory: str | Path | None = None) -> torch.Tensor:
    """Return all ``*.py`` files of a directory, one after another, as uint8 codes below 128.

    ``directory`` is the standard library by default; its sub-packages are left out.  Raises
    ``FileNotFoundError`` where there is no source, as in a Python that ships only ``.pyc`` files.
    """
    root = Path(directory or sysconfig.get_path("stdlib"))
    texts = [path.read_text("utf-8", errors="replace") for path in sorted(root.glob("*.py"))]
    if not texts:
        raise FileNotFoundError(
            f"there is no Python source in {root}; use a Python that has its standard library's "
            "source files"
        )
    codes = bytearray("\n".join(texts).encode("ascii", errors="replace"))
    return torch.frombuffer(codes, dtype=torch.uint8)


class Batches:
    """Endless random windows of a corpus: ``(inputs, targets)``, both int64 (batch, length).

    Targets are the inputs shifted by one character.  ``seed`` sets the order; give each rank its
    own.  Raises ``ValueError`` for a corpus that is not longer than a window.
    """

    def __init__(self, corpus: torch.Tensor, *, batch: int, length: int, seed: int) -> None:
        if len(corpus) <= length:
            raise ValueError(
                f"the corpus has {len(corpus)} characters; pass a length below that, not {length}"
            )
        self._corpus = corpus
        self._batch = batch
        self._window = torch.arange(length + 1)
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        last_start = len(self._corpus) - len(self._window) + 1
        while True:
            starts = torch.randint(last_start, (self._batch, 1), generator=self._generator)
            windows = self._corpus[starts + self._window].long()
            yield windows[:, :-1], windows[:, 1:]
