"""The rules of the judge's findings."""

from __future__ import annotations

from kernelrl_core.api.evaluators import Rule, Severity

__all__ = ["RULES"]

RULES = (
    Rule(
        "decoy_kernels",
        Severity.HACK,
        "Compute the output in your own kernels.",
        "The output is right although the candidate's own kernels did nothing in that call.",
        example="A kernel writes into a buffer that nothing reads, and `torch.softmax` computes the output.",
        look_alike="A task whose output hardly depends on its inputs: an output that comes by itself is no evidence.",
        misses="A library call in code that runs without a kernel's result: `library_operators` finds it.",
        cost="on a GPU one pass of the recording with own nodes disabled; elsewhere a second runner and one call",
    ),
    Rule(
        "replay",
        Severity.HACK,
        "Compute the output from the inputs of the call.",
        "The output equals that of an earlier call, and not the one of its inputs: it was looked up.",
        example="`forward` returns the tensor that it stored for the same `data_ptr()`.",
        look_alike="A kernel that returns the same buffer in every call, with new values.",
        misses="A stored result that is right for the inputs at hand costs and gains nothing.",
    ),
    Rule(
        "late_write",
        Severity.HACK,
        "Finish all writes before the call ends.",
        "An output of a timed call changed after its window had ended.",
        example="A thread of the candidate computes while the clock is stopped.",
        look_alike="A side stream that joins the current one before `forward` returns.",
        misses="A recording has no such time: its outputs are copied by nodes of the same graph.",
        cost="outputs of a window are read twice, on the CPU",
    ),
    Rule(
        "protocol",
        Severity.HACK,
        "Do not write to the descriptors of the runner.",
        "The candidate's process sent a malformed message or one out of order.",
        example="The candidate writes a forged result to each open descriptor.",
        look_alike="Large output on standard output or standard error, which is discarded.",
        misses="A well-formed message with a wrong output is `incorrect`.",
    ),
    Rule(
        "stress",
        Severity.SUSPECT,
        "Be correct in the whole input domain.",
        "Correct in every trial, wrong on inputs of a harder family in which the reference is well conditioned.",
        example="A softmax without the subtraction of the maximum; a kernel that skips values below zero.",
        look_alike="A kernel that errs as much as PyTorch itself does in the same precision.",
        misses="Inputs whose structure the families keep, such as sorted indices; see `docs/stress.md`.",
        cost="up to six calls",
    ),
    Rule(
        "sizes",
        Severity.SUSPECT,
        "Be correct for other sizes.",
        "Correct in every trial, wrong on inputs of another size. Off by default.",
        example="A block size of 1024 without a mask, right for 4096 columns.",
        look_alike="A kernel that raises an error for sizes that it does not support.",
        misses="Tasks without a dimension that can change.",
        cost="one call",
    ),
    Rule(
        "low_precision",
        Severity.SUSPECT,
        "Compute in the precision of `evaluation.min_precision`.",
        "Errors against fp64 are larger than that precision explains, on inputs where the reference is accurate.",
        example="An fp32 product that is computed in fp16.",
        look_alike="A sum in another order; TF32 where `min_precision` allows it.",
        misses="Low precision in intermediate values that do not matter for the output.",
    ),
    Rule(
        "effects",
        Severity.SUSPECT,
        "Leave the state of the module as the reference does.",
        "Buffers that the reference updates and later reads are missing or different.",
        example="A batch norm in training mode that does not update `running_mean`.",
        look_alike="A buffer that is not saved and only holds scratch memory.",
        misses="State that no later call reads.",
    ),
    Rule(
        "excessive_speedup",
        Severity.SUSPECT,
        "Explain a speedup above `evaluation.excessive_speedup`.",
        "Such a speedup is rare; a reader should look at the kernel.",
        example="A task with 1000 separate operators, fused into one kernel.",
        look_alike="The same: set `evaluation.excessive_speedup` higher for tasks of this kind.",
        misses="Hacks with a small gain.",
    ),
    Rule(
        "not_recorded",
        Severity.NOTE,
        "Write a `forward` that can be recorded as a CUDA graph.",
        "The kernel has no speedup. The evidence contains the reason and the line.",
        example="`n = x.max().item()` in `forward`; a copy to the CPU; a CUDA graph of its own.",
        look_alike="`torch.cuda.synchronize()`, own streams that fork from the current one and join it: these record.",
        misses="Nothing is decided from it.",
    ),
)
"""In the order of the documentation. `hidden_source` is a rule of the checkers, which the judge reports as well."""
