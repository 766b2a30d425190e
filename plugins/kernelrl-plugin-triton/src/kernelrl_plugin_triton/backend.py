"""The backend `triton` in the main process: facts for prompts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_plugin_triton.config import TritonConfig
from kernelrl_plugin_triton.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_triton.kernels import triton_facts

__all__ = ["TritonBackend"]

_INSTRUCTIONS = (
    "Import triton and triton.language as tl, decorate each kernel with @triton.jit, allocate the outputs with "
    "torch.empty or torch.empty_like, and launch the kernels from ModelNew.forward as kernel[grid](...). Mask every "
    "load and store that can leave its tensor; sizes of tl.arange are powers of two. tl.dot rounds float32 operands "
    'to tf32; float32 tasks need input_precision="ieee". '
    "On a GPU, calls of forward are recorded as a CUDA graph and timed as replays of it, without launch overhead. "
    "What the host decides from values on the device (.item(), .cpu(), a branch on data) cannot be recorded: such a "
    "kernel can be correct, but has no speedup. Work on parameters alone may be done once, at the first call."
)


class TritonBackend(Backend):
    """See `Backend`."""

    facts = BackendFacts(
        title="Triton", fences=("triton",), instructions=_INSTRUCTIONS, example=ONE_SHOT, few_shot=FEW_SHOT
    )
    runner = "kernelrl_plugin_triton.runner:TritonRunner"

    def __init__(self, config: TritonConfig) -> None:
        self.config = config

    def source_facts(self, source: str) -> SourceFacts:
        """Kernels of a candidate, and whether `ModelNew.forward` can reach a launch of each."""
        return triton_facts(source)
