"""Fast builds of PyTorch extensions: `load_inline` with a cache, confined compilers and precompiled headers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import errors, extensions

    BuildError = errors.BuildError
    load_inline = extensions.load_inline

__all__ = ["BuildError", "load_inline"]


def __getattr__(name: str) -> object:
    # Lazy: a runner imports light modules of this package, and neither torch nor the build service with them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import errors, extensions

    return {"BuildError": errors.BuildError, "load_inline": extensions.load_inline}[name]
