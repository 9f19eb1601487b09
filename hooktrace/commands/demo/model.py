"""A character-level transformer of a few million parameters."""

from __future__ import annotations

import torch
from torch import nn


class CharTransformer(nn.Module):
    """Predicts the next character.

    Takes int64 codes (batch, length), returns logits (batch, length, vocabulary).  ``length`` is
    the longest window it can read.
    """

    def __init__(
        self, vocabulary: int, *, length: int = 64, width: int = 256, layers: int = 6
    ) -> None:
        super().__init__()
        self.character = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, nhead=8, dim_feedforward=4 * width, dropout=0.0,
                activation="gelu", batch_first=True, norm_first=True,
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False
        )

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the logits of the character that follows each position."""
        length = codes.shape[1]
        hidden = self.character(codes) + self.position.weight[:length]
        mask = self.get_buffer("mask")[:length, :length]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.logits(self.norm(hidden))  # type: ignore[no-any-return]
