"""The backend `tilelang` in the main process: prompt facts, and the kernels of a source."""

from __future__ import annotations

from kernelrl_core.api.backends import Backend, BackendFacts, SourceFacts
from kernelrl_core.api.sources import decorated_kernels
from kernelrl_plugin_tilelang.config import TileLangConfig
from kernelrl_plugin_tilelang.examples import FEW_SHOT, ONE_SHOT

__all__ = ["TileLangBackend"]

_INSTRUCTIONS = (
    "Import tilelang and tilelang.language as T. Decorate a builder with @tilelang.jit; inside it, write the kernel "
    'with @T.prim_func and T.Kernel(...) and return it. Sizes that are not known beforehand are T.dynamic("n"). Give '
    'every parameter of the builder a default, take the dtype as a string such as "float16", and pass that of the '
    "inputs. Allocate outputs with torch.empty and call builder(...)(inputs, outputs) from ModelNew.forward with "
    "contiguous tensors. Accumulate in float32. T.gemm is meant for float16 and bfloat16: on float32 it computes in "
    "TF32, which the float32 tolerance does not allow. "
    "On a GPU, calls of forward are recorded as a CUDA graph and timed as replays of it, without launch overhead. "
    "What the host decides from values on the device (.item(), .cpu(), a branch on data) cannot be recorded: such a "
    "kernel can be correct, but has no speedup. Work on parameters alone may be done once, at the first call."
)


class TileLangBackend(Backend):
    """See `Backend`."""

    facts = BackendFacts(
        title="TileLang", fences=("tilelang",), instructions=_INSTRUCTIONS, example=ONE_SHOT, few_shot=FEW_SHOT
    )
    runner = "kernelrl_plugin_tilelang.runner:TileLangRunner"

    def __init__(self, config: TileLangConfig) -> None:
        self.config = config

    def source_facts(self, source: str) -> SourceFacts:
        """Functions decorated with `tilelang.jit` or `T.prim_func`. A `prim_func` in a builder counts with it."""
        # Calls go to the result of `tilelang.compile` or of a builder, so any use of a kernel's name may launch it.
        return SourceFacts(
            kernels=decorated_kernels(source, ("tilelang.jit", "tilelang.language.prim_func"), outermost=True)
        )
