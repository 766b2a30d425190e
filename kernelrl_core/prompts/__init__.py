"""Composes every prompt of a run: the core does it alone, from templates and the settings of the recipe."""

from __future__ import annotations

from kernelrl_core.prompts.composer import MINIMUM_REPLY_TOKENS, Composer

__all__ = ["MINIMUM_REPLY_TOKENS", "Composer"]
