"""Analysis of Python sources: parsing, reachability, kernels under a decorator, error texts, near duplicates."""

from __future__ import annotations

from kernelrl_core.sources.decorators import decorated_kernels
from kernelrl_sources.error_text import clean_error
from kernelrl_sources.reachability import ENTRY, SourceIndex, free_names, names_in, parse_source, targets_of
from kernelrl_sources.similarity import NearDuplicates, nearly_equal, normalised_source, structural_similarity
from kernelrl_sources.syntax import MAX_SOURCE_CHARACTERS, children, parse, walk

__all__ = [
    "ENTRY",
    "MAX_SOURCE_CHARACTERS",
    "NearDuplicates",
    "SourceIndex",
    "children",
    "clean_error",
    "decorated_kernels",
    "free_names",
    "names_in",
    "nearly_equal",
    "normalised_source",
    "parse",
    "parse_source",
    "structural_similarity",
    "targets_of",
    "walk",
]
