"""Analysis of Python sources: parsing, reachability, kernels under a decorator, error texts."""

from __future__ import annotations

from kernelrl_core.sources.decorators import decorated_kernels
from kernelrl_core.sources.error_text import clean_error
from kernelrl_core.sources.reachability import ENTRY, SourceIndex, free_names, names_in, parse_source, targets_of
from kernelrl_core.sources.syntax import MAX_SOURCE_CHARACTERS, children, parse, walk

__all__ = [
    "ENTRY",
    "MAX_SOURCE_CHARACTERS",
    "SourceIndex",
    "children",
    "clean_error",
    "decorated_kernels",
    "free_names",
    "names_in",
    "parse",
    "parse_source",
    "targets_of",
    "walk",
]
