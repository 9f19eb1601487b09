"""What the demo trains, on what: a small transformer, on the source of the standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

VOCABULARY = 128
"""Characters are ASCII codes; the few others in the source become ``?``."""


class CharTransformer(nn.Module):
    """Predicts the next character.

    Takes int64 codes (batch, length), returns logits (batch, length, vocabulary).  ``length`` is
    the longest window it can read.
    """

    def __init__(self, *, length: int, width: int = 256, layers: int = 6) -> None:
        super().__init__()
        self.character = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, nhead=8, dim_feedforward=4 * width, dropout=0.0,
                activation="gelu", batch_first=True, norm_first=True,
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, VOCABULARY)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the logits of the character that follows each position."""
        length = codes.shape[1]
        hidden = self.character(codes) + self.position.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.logits(self.norm(hidden))  # type: ignore[no-any-return]


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


def batches(
    corpus: torch.Tensor, *, batch: int, length: int, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield random windows of a corpus: ``(inputs, targets)``, both int64 (batch, length).

    Targets are the inputs shifted by one character.  ``seed`` sets the order; give each rank its
    own.  The corpus must be longer than a window.
    """
    window = torch.arange(length + 1)
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(corpus) - length, (batch, 1), generator=generator)
        windows = corpus[starts + window].long()
        yield windows[:, :-1], windows[:, 1:]
