"""Options of the retrievers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.api.config import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt, Requires
from kernelrl_core.api.retrievers import RetrieverConfig
from kernelrl_plugin_raicl.index.manifest import CORPORA, build_command

__all__ = ["Bm25Config", "FaissConfig", "HybridConfig", "IndexConfig", "ValueConfig"]


@attrs.frozen
class IndexConfig(RetrieverConfig):
    """Options of all retrievers of this plugin."""

    index: Path
    """Directory written by `kernelrl index build`; relative to the working directory."""
    corpora: tuple[str, ...] = attrs.field(default=CORPORA, kw_only=True)
    """Corpora of the index, for the command that builds a missing one."""
    speedup_weight: NonNegativeFloat = NonNegativeFloat(0.0)
    """Weight of the measured speedup in the order of similar examples: log2(speedup) / 3, from -1 to 1, times this
    weight is added to the similarity divided by the greatest one. 0: no influence."""
    diversity: Fraction = Fraction(0.0)
    """Weight of the difference from the examples before: 0 orders by similarity only, 1 by difference only (maximal
    marginal relevance; share of common words of the references)."""
    contrast: bool = False
    """Whether to show a slow and a fast kernel of one reference, in this order, where their measured speedups differ by
    at least 1.2 times."""
    max_tokens: PositiveInt | None = PositiveInt(6000)
    """Longest example: reference and kernel in tokens, estimated as bytes / 3. Longer ones are never shown. null: no
    limit."""

    def requires(self) -> Requires:
        return _requires(self, dense=False)


@attrs.frozen
class Bm25Config(IndexConfig):
    """Options of `bm25`."""


@attrs.frozen
class FaissConfig(IndexConfig):
    """Options of `faiss`."""

    embedder: str | None = None
    """Name or directory of the index's embedding model, if it has moved since the index was built."""
    device: str = "cpu"
    """Device that embeds the tasks: `cpu`, `cuda` or `cuda:N`."""

    def requires(self) -> Requires:
        return _requires(self, dense=True)


@attrs.frozen
class HybridConfig(FaissConfig):
    """Options of `hybrid`."""

    lexical_weight: Fraction = Fraction(0.8)
    """Weight of the lexical similarity; that of the cosine is the rest. The default was chosen with a small embedder of
    texts; an embedder of code may deserve more."""


@attrs.frozen
class ValueConfig(HybridConfig):
    """Options of `value`."""

    base: Literal["bm25", "faiss", "hybrid"] = "bm25"
    """Search whose order is changed."""
    value_weight: NonNegativeFloat = NonNegativeFloat(0.5)
    """Weight of an example's usefulness beside its similarity, which is at most 1."""
    exploration: NonNegativeFloat = NonNegativeFloat(0.5)
    """Weight of the confidence bound: prefers examples that were shown less often."""
    prior: PositiveFloat = PositiveFloat(8.0)
    """Number of samples without effect that are added to an example's usefulness."""

    def requires(self) -> Requires:
        return _requires(self, dense=self.base != "bm25")

    def problems(self) -> Iterable[str]:
        if not self.value_weight and self.exploration:
            yield "exploration without value_weight has no effect; write base as the retriever instead"


def _requires(config: IndexConfig, *, dense: bool) -> Requires:
    # The core writes the backend of the recipe in place of BACKEND.
    fix = build_command(config.index, config.corpora, dense=dense, backend="BACKEND")
    return Requires(files=(str(config.index),), fix=fix)
