"""Kinds of the nodes of a recording: own kernels of the candidate, library kernels, and glue.

A kernel is own if it was not loaded from a file of torch or of CUDA's libraries: Triton, NVRTC, TileLang and CuTe load
their kernels through the driver, and an extension registers kernels from a file that the judge built. Names decide only
which kernels of torch are glue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_judge.replay.library import Node

__all__ = ["ALLOWED", "glue_numbers", "kind_of", "kinds", "own_numbers", "refused"]

ALLOWED = frozenset({"kernel", "memcpy", "memset", "event wait", "event record", "alloc", "free", "empty", "child"})
"""Types of nodes that can be replayed on new inputs."""
_DISABLED = frozenset({"kernel", "memcpy", "memset"})
"""Types of nodes that the driver can disable."""
_MAX_COUNTER_BYTES = 1 << 20
"""Maximum size of the counters of a library's kernel."""
_LIBRARY_FILE = re.compile(
    r"/lib(?:torch|c10|cudart|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl|nvrtc|nvJitLink|caffe2)[^/]*\.so[^/]*$"
)
_GLUE = re.compile(
    r"FillFunctor|direct_copy_kernel|unrolled_elementwise_kernel_for_copy|CatArrayBatchedCopy|float\w*_copy_kernel"
    r"|copy_device_to_device|RangeFactories"
)
"""Copies, fills, and sequences such as those of `arange`: their numbers are constants of the recording."""
_COMBINED = re.compile(r"reduce_kernel.*(?:sum_functor|MeanOps|M(?:ax|in)NanFunctor|M(?:ax|in)Ops)")
_SMALL = re.compile(r"reduce_kernel|elementwise_kernel")


def kind_of(node: Node) -> str:
    """`own`, `library` or `glue`. Nodes of other types than `kernel` copy or fill memory and are glue."""
    if node.type != "kernel":
        return "glue"
    if node.launched_by == "driver":
        return "own"
    if node.launched_by == "other" or _LIBRARY_FILE.search(node.file):
        return "glue" if _GLUE.search(node.name) else "library"
    return "own"


def kinds(nodes: Sequence[Node], given: Sequence[tuple[int, int]]) -> list[str]:
    """The kind of each node, in the order of their capture.

    A library kernel that finishes the work of own kernels is glue: a sum, mean, maximum or minimum, or an elementwise
    kernel or reduction of one block, that gets memory of an own kernel and neither an input nor a parameter.

    Args:
        given: address ranges of inputs and parameters, [begin, end).
    """
    found: list[str] = []
    of_kernels: set[int] = set()
    for node in nodes:
        kind = kind_of(node)
        if kind == "library" and _finishes(node) and not of_kernels.isdisjoint(node.addresses):
            reads_given = any(begin <= address < end for address in node.addresses for begin, end in given)
            if not reads_given:
                kind = "glue"
                of_kernels |= node.addresses
        elif kind == "own":
            of_kernels |= node.addresses
        found.append(kind)
    return found


def _finishes(node: Node) -> bool:
    return bool(_COMBINED.search(node.name) or (node.blocks == 1 and _SMALL.search(node.name)))


def own_numbers(nodes: Sequence[Node], first: int) -> tuple[int, ...]:
    """Numbers of the own kernels in their graph.

    Args:
        first: number of the first of `nodes`.
    """
    return tuple(first + place for place, node in enumerate(nodes) if kind_of(node) == "own")


def glue_numbers(nodes: Sequence[Node], first: int, given: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Numbers of copies, fills, and library kernels that finish the work of own kernels, in their graph.

    Fills that clear the counters of a library's kernel are not among them: without such a fill, a replay of a reduction
    of torch on an H100 ended with an error, and other replays never ended.

    Args:
        first: number of the first of `nodes`.
        given: as for `kinds`.
    """
    found = []
    for place, (node, kind) in enumerate(zip(nodes, kinds(nodes, given), strict=True)):
        if kind == "glue" and node.type in _DISABLED and not _clears_counters(node, nodes[place + 1 :]):
            found.append(first + place)
    return tuple(found)


def _clears_counters(node: Node, later: Sequence[Node]) -> bool:
    """Whether a node is a small fill and the next kernel a library's."""
    if node.type != "memset" or node.filled_bytes > _MAX_COUNTER_BYTES:
        return False
    next_kernel = next((one for one in later if one.type == "kernel"), None)
    return next_kernel is not None and kind_of(next_kernel) != "own"


def refused(nodes: Sequence[Node]) -> str:
    """The reason why a graph with these nodes cannot be replayed on new inputs; empty if it can."""
    for node in nodes:
        if node.type == "memcpy" and node.on_host:
            return "it copies between host and device memory"
        if node.type not in ALLOWED:
            return f"it adds a node of type {node.type!r} to the graph"
    return ""
