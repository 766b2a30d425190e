"""Triton kernels, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return []
