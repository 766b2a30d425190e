"""The environment of a recipe in other people's loops: `kernelrl_adapters.cookbook` for tinker-cookbook, and this very
package as a plugin of verifiers, which finds what `__all__` names.
"""

from __future__ import annotations

__all__ = ["KernelEnv", "KernelHarness", "KernelTaskset", "load_environment"]


def __getattr__(name: str) -> object:
    # verifiers takes seconds to import, and whoever uses the other adapter need not have it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import verifiers_plugin

    return getattr(verifiers_plugin, name)
