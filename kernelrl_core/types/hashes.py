"""Hashes of texts."""

from __future__ import annotations

import hashlib

__all__ = ["sha256_text"]


def sha256_text(text: str) -> str:
    """Hex SHA-256 of the UTF-8 bytes of `text` (64 characters)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
