"""The backend `cpp` in the main process: prompt facts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_plugin_cpp.config import CppConfig
from kernelrl_plugin_cpp.examples import FEW_SHOT, ONE_SHOT

__all__ = ["CppBackend"]

_INSTRUCTIONS = (
    "Write the kernels in C++ inside a Python string and build them at import with "
    "torch.utils.cpp_extension.load_inline(name=..., cpp_sources=..., functions=[...]). Everything runs on the CPU: "
    "take raw pointers with data_ptr<float>(), write simple loops that the compiler can vectorise, use OpenMP where "
    "several threads help, and call the bound functions from ModelNew.forward. -O3 -march=native -fopenmp are set."
)


class CppBackend(Backend):
    """See `Backend`."""

    facts = BackendFacts(
        title="C++",
        fences=("cpp", "c++"),
        instructions=_INSTRUCTIONS,
        example=ONE_SHOT,
        few_shot=FEW_SHOT,
        host_language=True,
    )
    runner = "kernelrl_plugin_cpp.runner:CppRunner"

    def __init__(self, config: CppConfig) -> None:
        self.config = config

    def source_facts(self, source: str) -> SourceFacts:
        """Bound functions of a candidate, each with whether `ModelNew.forward` can reach a call of it."""
        return extension_facts(source, "cpp")
