"""Options of a component, read as a recipe reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.structure import component_block

__all__ = ["read_options"]


def read_options(registry: Registry, kind: str, name: str, options: Mapping[str, Any]) -> Use:
    """The component `name` with these options.

    Raises:
        RecipeError: mistakes in the options.
    """
    key = next(key for key, block in blocks().items() if block.kind == kind)
    return component_block(key, {**options, "use": name}, registry)
