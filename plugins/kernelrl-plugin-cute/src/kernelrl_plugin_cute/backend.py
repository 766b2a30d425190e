"""The backend `cute` in the main process: prompt facts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_core.api.sources import decorated_kernels
from kernelrl_plugin_cute.config import CuteConfig
from kernelrl_plugin_cute.examples import FEW_SHOT, ONE_SHOT

__all__ = ["CuteBackend"]

_INSTRUCTIONS = (
    "Import cutlass and cutlass.cute as cute. Decorate each kernel with @cute.kernel and launch it from a @cute.jit "
    "function with kernel(...).launch(grid=..., block=..., stream=stream), where stream is a parameter of type "
    "cuda.bindings.driver.CUstream. Compile the @cute.jit function once per dtype when the module is imported: "
    "cute.compile(function, ...) with tensors from cutlass.cute.runtime.make_fake_compact_tensor, whose sizes are "
    "cute.sym_int() and whose stride_order puts the last dimension first, and cutlass.cute.runtime.make_fake_stream(). "
    "In ModelNew.forward call the compiled function with from_dlpack(tensor).mark_layout_dynamic(leading_dim="
    "tensor.dim() - 1) of contiguous tensors and cutlass.torch.current_stream(); allocate outputs with torch.empty or "
    "torch.empty_like. Check bounds in every kernel and accumulate in cutlass.Float32. A launch without a stream is "
    "on the default stream, cannot be recorded, and has no speedup. "
    "On a GPU, calls of forward are recorded as a CUDA graph and timed as replays of it, without launch overhead. "
    "What the host decides from values on the device (.item(), .cpu(), a branch on data) cannot be recorded: such a "
    "kernel can be correct, but has no speedup. Work on parameters alone may be done once, at the first call."
)


class CuteBackend(Backend):
    """See `Backend`."""

    facts = BackendFacts(
        title="CuTe DSL", fences=("cute",), instructions=_INSTRUCTIONS, example=ONE_SHOT, few_shot=FEW_SHOT
    )
    runner = "kernelrl_plugin_cute.runner:CuteRunner"

    def __init__(self, config: CuteConfig) -> None:
        self.config = config

    def source_facts(self, source: str) -> SourceFacts:
        """Functions decorated with `cute.kernel`."""
        # One under `cute.jit` runs on the host, or inside a kernel, and leads to the kernels that it names.
        return SourceFacts(kernels=decorated_kernels(source, ("cutlass.cute.kernel",)))
