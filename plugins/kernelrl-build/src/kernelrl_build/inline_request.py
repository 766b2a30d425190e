"""One call of `load_inline` as the build process reads it, with the facts that the backend adds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs

__all__ = ["InlineRequest"]

_FORMAT = 8
"""Part of every key: raise it when the result of a build changes."""


_PASSING = ("-Xcompiler", "--compiler-options")
_EMPTY = ("''", '""')


def _words(flags: Iterable[str]) -> tuple[str, ...]:
    """The words of flags, without empty ones and options that pass an empty one on, as torch's shell reads them."""
    found: list[str] = []
    for word in (word for flag in flags for word in flag.split()):
        if word not in _EMPTY:
            found.append(word)
        elif found and found[-1] in _PASSING:
            found.pop()
    return tuple(found)


@attrs.frozen
class InlineRequest:
    """One call of `load_inline`, and what the backend adds to it. Each flag is a word of its own."""

    language: Literal["cuda", "hip", "cpp"]
    name: str
    """Name of the extension, for messages alone."""
    cpp_sources: tuple[str, ...]
    device_sources: tuple[str, ...]
    """The argument `cuda_sources` of the call."""
    functions: tuple[tuple[str, str], ...]
    """Functions to bind, with their documentation; empty when the sources hold a Python module of their own."""
    cflags: tuple[str, ...] = attrs.field(converter=_words)
    device_flags: tuple[str, ...] = attrs.field(converter=_words)
    ldflags: tuple[str, ...] = attrs.field(converter=_words)
    include_paths: tuple[str, ...]
    arch: tuple[str, ...]
    """Architectures of the GPU, such as `9.0` or `gfx90a`; empty for the CPU."""
    device_only: bool = False
    """Compile the device code and stop."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InlineRequest:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        fields["functions"] = tuple((name, documentation) for name, documentation in fields["functions"])
        return cls(**fields)

    def key(self, toolchain_id: str) -> str:
        """Hex SHA-256 of everything that the result depends on."""
        content = {**attrs.asdict(self), "name": "", "toolchain": toolchain_id, "format": _FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
