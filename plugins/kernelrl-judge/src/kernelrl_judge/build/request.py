"""The request for one build: sources, functions, flags, architecture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import attrs

__all__ = ["InlineRequest"]

_FORMAT = 4
"""Goes into every key: raise it when what a build gives changes."""


@attrs.frozen
class InlineRequest:
    """One call of `load_inline`, and what the backend adds to it."""

    language: Literal["cuda", "hip", "cpp"]
    name: str
    """Name of the extension, for messages alone."""
    cpp_sources: tuple[str, ...]
    device_sources: tuple[str, ...]
    """What the call names `cuda_sources`."""
    functions: tuple[tuple[str, str], ...]
    """Functions to bind, with their documentation; empty when the sources hold a Python module of their own."""
    cflags: tuple[str, ...]
    device_flags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    arch: tuple[str, ...]
    """Architectures of the GPU, such as `9.0` or `gfx90a`; empty for the processor."""
    device_only: bool = False
    """Compile the device code and stop."""

    def to_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InlineRequest:
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        fields["functions"] = tuple((name, text) for name, text in fields["functions"])
        return cls(**fields)

    def key(self, toolchain_id: str) -> str:
        """Hex SHA-256 of everything that the result depends on."""
        content = {**self.to_json(), "name": "", "toolchain": toolchain_id, "format": _FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
