"""Both ends of a connection prove that they know the token; neither sends it.

    who listens   --nonce-->          who connects
                  <--nonce, proof--
                  --proof-->

A proof is the HMAC-SHA256 of both nonces and of who gives it, keyed by the token: whoever listens
in the hub's place learns nothing from it, and cannot give it back, nor an earlier one again.  It is
waited for as a whole and compared in constant time: nothing tells how much of a guess was right.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Generator

TOKEN_BYTES = 16
NONCE_BYTES = 16
PROOF_BYTES = 32

Handshake = Generator[tuple[bytes, int], bytes, bytes | None]
"""Yields what to send and how many bytes to wait for, and takes these; returns what to send last.

``None`` where the other side did not prove that it knows the token.
"""


def listen(token: bytes) -> Handshake:
    """The part of the one who was connected to."""
    asked = secrets.token_bytes(NONCE_BYTES)
    answer = yield asked, NONCE_BYTES + PROOF_BYTES
    nonces, proof = asked + answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    is_right = hmac.compare_digest(proof, _proof(token, b"connects", nonces))
    return _proof(token, b"listens", nonces) if is_right else None


def connect(token: bytes) -> Handshake:
    """The part of the one who connects."""
    asked = yield b"", NONCE_BYTES
    nonces = asked + secrets.token_bytes(NONCE_BYTES)
    proof = yield nonces[NONCE_BYTES:] + _proof(token, b"connects", nonces), PROOF_BYTES
    is_right = hmac.compare_digest(proof, _proof(token, b"listens", nonces))
    return b"" if is_right else None


def _proof(token: bytes, by: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, by + nonces, "sha256")
