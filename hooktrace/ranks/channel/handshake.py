"""Both ends of a connection prove that they know the token; neither sends it.

    who listens   --nonce-->          who connects
                  <--nonce, proof--
                  --proof-->

A proof is the HMAC-SHA256 of both nonces and of who gives it, keyed by the token: whoever listens
in the hub's place learns nothing from it, and cannot give it back, nor an earlier one again.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Generator

TOKEN_BYTES = 16
NONCE_BYTES = 16
PROOF_BYTES = 32

Handshake = Generator[tuple[bytes, int], bytes, bytes]
"""Yields what to send and how many bytes to wait for, and takes these; returns what to send last.

Raises ``WrongTokenError`` where the other side did not prove that it knows the token.
"""


class WrongTokenError(Exception):
    """The other side does not know the token."""


def listen(token: bytes) -> Handshake:
    """The part of the one who was connected to."""
    asked = secrets.token_bytes(NONCE_BYTES)
    answer = yield asked, NONCE_BYTES + PROOF_BYTES
    nonces = asked + answer[:NONCE_BYTES]
    _check(answer[NONCE_BYTES:], _proof(token, b"connects", nonces))
    return _proof(token, b"listens", nonces)


def connect(token: bytes) -> Handshake:
    """The part of the one who connects."""
    asked = yield b"", NONCE_BYTES
    nonces = asked + secrets.token_bytes(NONCE_BYTES)
    proof = yield nonces[NONCE_BYTES:] + _proof(token, b"connects", nonces), PROOF_BYTES
    _check(proof, _proof(token, b"listens", nonces))
    return b""


def _proof(token: bytes, by: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, by + nonces, "sha256")


def _check(proof: bytes, right: bytes) -> None:
    # All of it at once and in constant time: no answer may tell how much of a guess was right.
    if not hmac.compare_digest(proof, right):
        raise WrongTokenError
