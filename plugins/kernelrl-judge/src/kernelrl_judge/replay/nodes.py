"""Kernels of a recording: the candidate's own, those of libraries, and glue.

A kernel is own if it was not loaded from a file of torch or of CUDA's libraries: Triton, NVRTC, TileLang and CuTe load
theirs through the driver, and an extension registers them from a file that the judge built. Names decide only which
kernels of torch are glue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_judge.replay.library import Node

__all__ = ["ALLOWED", "kind_of", "own_numbers", "refused"]

ALLOWED = frozenset({"kernel", "memcpy", "memset", "event wait", "event record", "alloc", "free", "empty", "child"})
"""Types of nodes that can be replayed on new inputs."""
_LIBRARY_FILE = re.compile(
    r"/lib(?:torch|c10|cudart|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl|nvrtc|nvJitLink|caffe2)[^/]*\.so[^/]*$"
)
_GLUE = re.compile(
    r"FillFunctor|direct_copy_kernel|unrolled_elementwise_kernel_for_copy|CatArrayBatchedCopy|float\w*_copy_kernel"
    r"|copy_device_to_device"
)


def kind_of(node: Node) -> str:
    """`own`, `library` or `glue`; other types than kernels move or fill memory and are glue."""
    if node.type != "kernel":
        return "glue"
    if node.launched_by == "driver":
        return "own"
    if node.launched_by == "other" or _LIBRARY_FILE.search(node.file):
        return "glue" if _GLUE.search(node.name) else "library"
    return "own"


def own_numbers(nodes: Sequence[Node], first: int) -> tuple[int, ...]:
    """Numbers of the candidate's own kernels in their graph.

    Args:
        first: number of the first of `nodes`.
    """
    return tuple(first + place for place, node in enumerate(nodes) if kind_of(node) == "own")


def refused(nodes: Sequence[Node]) -> str:
    """Why a graph with these nodes cannot be replayed on new inputs; empty if it can."""
    for node in nodes:
        if node.type == "memcpy" and node.on_host:
            return "it copies between host and device memory"
        if node.type not in ALLOWED:
            return f"it adds a node of type {node.type!r} to the graph"
    return ""
