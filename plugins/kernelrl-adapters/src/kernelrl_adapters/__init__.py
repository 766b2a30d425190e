"""The evaluator and the environment of a recipe in other frameworks.

| module | for |
|---|---|
| `kernelrl_adapters.cookbook` | tinker-cookbook: whole episodes |
| `kernelrl_adapters.inspect` | Inspect AI: whole episodes |
| `kernelrl_adapters.trl`, `kernelrl_adapters.verl` | reward functions and rows of prompts |
| `kernelrl_adapters.kernelbench` | callers of KernelBench's `eval_kernel_against_ref` |

This package itself is a plugin of verifiers, which loads the names in `__all__`.
"""

from __future__ import annotations

__all__ = ["KernelEnv", "KernelHarness", "KernelTaskset", "load_environment"]


def __getattr__(name: str) -> object:
    # Lazy: verifiers takes seconds to import, and the cookbook adapter works without it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import verifiers_plugin

    return getattr(verifiers_plugin, name)
