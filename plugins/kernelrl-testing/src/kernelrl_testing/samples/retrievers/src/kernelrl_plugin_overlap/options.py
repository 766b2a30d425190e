"""Options of the retriever `overlap`."""

import attrs

from kernelrl_core.api.config import Fraction
from kernelrl_core.api.retrievers import RetrieverConfig


@attrs.frozen
class OverlapConfig(RetrieverConfig):
    """Options."""

    min_similarity: Fraction = Fraction(0.0)
    """Least share of common words of an example."""
