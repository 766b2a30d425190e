"""The backend `numba_cpu` in the main process."""

from kernelrl_core.api.backends import Backend, BackendFacts, Example, SourceFacts
from kernelrl_core.api.sources import decorated_kernels
from kernelrl_plugin_numba_cpu.options import NumbaCpuConfig

REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x + 1


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []
"""
KERNEL = """\
import torch
from numba import njit


@njit
def square_plus_one(source, target):
    for i in range(source.size):
        target[i] = source[i] * source[i] + 1


class ModelNew(torch.nn.Module):
    def forward(self, x):
        target = torch.empty_like(x)
        square_plus_one(x.numpy().ravel(), target.numpy().ravel())
        return target
"""


class NumbaCpu(Backend):
    """Facts for the prompt, and the kernels of a source."""

    runner = "kernelrl_plugin_numba_cpu.runner:NumbaCpuRunner"
    facts = BackendFacts(
        title="Numba",
        fences=("numba",),
        instructions="Write loops over NumPy arrays, decorate them with @njit and call them from ModelNew.forward.",
        example=Example(REFERENCE, KERNEL, name="square plus one"),
    )

    def __init__(self, config: NumbaCpuConfig) -> None:
        pass

    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts(kernels=decorated_kernels(source, ("numba.njit",)))
