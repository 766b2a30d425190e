"""Corpora of worked kernels."""

from __future__ import annotations

from kernelrl_plugin_raicl.corpora.corpus import Corpus
from kernelrl_plugin_raicl.corpora.opening import corpus_names, open_corpus, split_names

__all__ = ["Corpus", "corpus_names", "open_corpus", "split_names"]
