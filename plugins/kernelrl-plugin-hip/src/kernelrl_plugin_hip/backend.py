"""The backend `hip` in the main process: prompt facts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_plugin_hip.archs import arch_facts, chosen_archs
from kernelrl_plugin_hip.config import HipConfig
from kernelrl_plugin_hip.examples import FEW_SHOT, ONE_SHOT

__all__ = ["HipBackend"]

_INSTRUCTIONS = (
    "Write the kernels in HIP C++ inside a Python string and build them at import with "
    "torch.utils.cpp_extension.load_inline(name=..., cpp_sources=..., cuda_sources=..., functions=[...]). "
    "cpp_sources declares each bound function; cuda_sources holds the HIP code: it includes <torch/extension.h> and "
    "<hip/hip_runtime.h> and defines the bound functions with the __global__ kernels that they launch, by "
    "kernel<<<blocks, threads>>>(...) or hipLaunchKernelGGL. Allocate outputs with torch::empty or torch::empty_like, "
    "check bounds in every kernel, and call the bound functions from ModelNew.forward. Shuffles take no mask: "
    "__shfl_down(value, offset). "
)


class HipBackend(Backend):
    """See `Backend`."""

    runner = "kernelrl_plugin_hip.runner:HipRunner"

    def __init__(self, config: HipConfig) -> None:
        self.config = config
        self.facts = BackendFacts(
            title="HIP",
            fences=("hip", "cpp", "c++"),
            instructions=_INSTRUCTIONS + arch_facts(chosen_archs(config.arch)),
            example=ONE_SHOT,
            few_shot=FEW_SHOT,
        )

    def source_facts(self, source: str) -> SourceFacts:
        """Kernels of a candidate, each with whether `ModelNew.forward` can reach a launch of it."""
        return extension_facts(source, "hip")
