"""The environment of a recipe for other training loops: `kernelrl_adapters.cookbook` for tinker-cookbook; this package
itself is a plugin of verifiers, which loads the names in `__all__`.
"""

from __future__ import annotations

__all__ = ["KernelEnv", "KernelHarness", "KernelTaskset", "load_environment"]


def __getattr__(name: str) -> object:
    # Lazy: verifiers takes seconds to import, and the cookbook adapter works without it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import verifiers_plugin

    return getattr(verifiers_plugin, name)
