"""Components that use other components, such as a policy with another policy as its learner.

Imports the plugin registry and the recipe reader.
"""

from __future__ import annotations

from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.plugins.versions import require_same_versions, worker_versions
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.structure import component_block

__all__ = [
    "RecipeError",
    "Registry",
    "Use",
    "component_block",
    "registry",
    "require_same_versions",
    "worker_versions",
]
