"""Requests for builds from the arguments of `load_inline`.

Light: a process of untrusted code imports it beside its own work.
"""

from __future__ import annotations

from typing import Any

__all__ = ["request"]


def request(
    name: str,
    cpp_sources: Any,
    cuda_sources: Any,
    functions: Any,
    extra_cflags: Any,
    extra_cuda_cflags: Any,
    extra_ldflags: Any,
    extra_include_paths: Any,
) -> dict[str, Any]:
    """The request of a call of `torch.utils.cpp_extension.load_inline`, as data for JSON.

    `BuildService.build` reads it. Equal calls have equal requests.

    Raises:
        ValueError: `functions` is neither a name, a list nor a dict; torch raises the same.
    """
    return {
        "name": str(name),
        "cpp_sources": _texts(cpp_sources),
        "device_sources": _texts(cuda_sources),
        "functions": _documented(functions),
        "cflags": _texts(extra_cflags),
        "device_flags": _texts(extra_cuda_cflags),
        "ldflags": _texts(extra_ldflags),
        "include_paths": _texts(extra_include_paths),
    }


def _documented(functions: Any) -> list[list[str]]:
    """Names of the functions to bind, each with its documentation."""
    if functions is None:
        return []
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, dict):
        return [[str(name), str(documentation)] for name, documentation in functions.items()]
    if isinstance(functions, list | tuple):
        # Torch documents a function by its name if the call gives no documentation.
        return [[str(name), str(name)] for name in functions]
    raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value]
