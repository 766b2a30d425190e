"""The backend `cuda` in the main process: prompt facts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_cuda.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_cuda.runtime_kernels import runtime_facts

__all__ = ["CudaBackend"]

_INSTRUCTIONS = (
    "Write the kernels in CUDA C++ inside a Python string and build them at import with "
    "torch.utils.cpp_extension.load_inline(name=..., cpp_sources=..., cuda_sources=..., functions=[...]). "
    "cpp_sources declares each bound function; cuda_sources defines it, with the __global__ kernels it launches. "
    "Allocate outputs with torch::empty or torch::empty_like, check bounds in every kernel, and call the bound "
    "functions from ModelNew.forward. A kernel may also be compiled at run time, by "
    "torch.cuda._compile_kernel(source, name) or, where cupy is installed, as cupy.RawKernel on torch's current stream."
    " On a GPU, calls of forward are recorded as a CUDA graph and timed as replays of it, without launch overhead. "
    "What the host decides from values on the device (.item(), .cpu(), a branch on data) cannot be recorded: such a "
    "kernel can be correct, but has no speedup. Work on parameters alone may be done once, at the first call."
)


class CudaBackend(Backend):
    """See `Backend`."""

    facts = BackendFacts(
        title="CUDA",
        fences=("cuda", "cpp", "c++"),
        instructions=_INSTRUCTIONS,
        example=ONE_SHOT,
        few_shot=FEW_SHOT,
    )
    runner = "kernelrl_plugin_cuda.runner:CudaRunner"

    def __init__(self, config: CudaConfig) -> None:
        self.config = config

    def source_facts(self, source: str) -> SourceFacts:
        """Kernels of a candidate, each with whether `ModelNew.forward` can reach a launch of it."""
        built, compiled = extension_facts(source, "cuda"), runtime_facts(source)
        names = {kernel.name for kernel in built.kernels}
        texts = {piece.source for piece in built.embedded}
        return SourceFacts(
            (*built.kernels, *(kernel for kernel in compiled.kernels if kernel.name not in names)),
            (*built.embedded, *(piece for piece in compiled.embedded if piece.source not in texts)),
            built.unread or compiled.unread,
        )
