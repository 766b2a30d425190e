"""Rewriting of corpus rows into a reference and a file that defines `ModelNew`, by their syntax alone."""

from __future__ import annotations

from kernelrl_plugin_raicl.rewriting.archive import rewrite_archive
from kernelrl_plugin_raicl.rewriting.inductor import rewrite_inductor
from kernelrl_plugin_raicl.rewriting.pair import Pair, Unrewritable
from kernelrl_plugin_raicl.rewriting.submissions import rewrite_submission

__all__ = ["Pair", "Unrewritable", "rewrite_archive", "rewrite_inductor", "rewrite_submission"]
