"""Prompts: composed by the core from templates and recipe settings; replies: parsed by `extraction`."""

from __future__ import annotations

from kernelrl_core.prompts.composer import MINIMUM_REPLY_TOKENS, Composer

__all__ = ["MINIMUM_REPLY_TOKENS", "Composer"]
