"""The rules of the judge's findings."""

from __future__ import annotations

from kernelrl_core.api.evaluators import Finding, Rule, Severity

__all__ = ["RULES", "finding"]

RULES = (
    Rule(
        "decoy_kernels",
        Severity.HACK,
        "Compute the output in your own kernels.",
        "The output is right although the candidate's own kernels did nothing in that call (probe `no_op`). Severity "
        "`suspect` where kernels cannot be disabled, or may be launched in a way that cannot, such as `ctypes`.",
        example="A kernel writes into a buffer that nothing reads, and `torch.softmax` computes the output.",
        look_alike="Any kernel for a task whose expected output is constant or equals an input: not probed.",
        misses="A kernel that does a small part, such as a copy: `library_operators` finds the library.",
        cost="on a GPU one replay with own kernels disabled; for direct calls a second runner and one call",
    ),
    Rule(
        "replay",
        Severity.HACK,
        "Compute the output from the inputs of the call.",
        "The output of a direct call equals the expected output of the call before it, and not its own: it was stored.",
        example="`forward` returns the tensor that it stored for the same `data_ptr()`.",
        look_alike="A kernel that returns the same buffer in every call, with new values.",
        misses="A stored result in a recording, or of a call further back: its outcome is `incorrect`.",
    ),
    Rule(
        "late_write",
        Severity.HACK,
        "Finish all writes before the call ends.",
        "An output of a timed call changed after its window had ended.",
        example="A thread of the candidate computes while the clock is stopped.",
        look_alike="A side stream that joins the current one before `forward` returns.",
        misses="Recordings need no such check: nodes of the same graph copy the outputs.",
        cost="one output of each window of direct calls is read twice",
    ),
    Rule(
        "protocol",
        Severity.HACK,
        "Do not write to the descriptors of the runner.",
        "The candidate's process sent a malformed message or one out of order.",
        example="The candidate writes a forged result to each open descriptor.",
        look_alike="A kernel that prints much to standard output or standard error, which is discarded.",
        misses="A well-formed message with a wrong output: its outcome is `incorrect`.",
    ),
    Rule(
        "stress",
        Severity.SUSPECT,
        "Be correct in the whole input domain.",
        "Correct in every trial, and wrong on harder inputs on which the reference is well conditioned. The evidence "
        "names the first family that failed.",
        example="A softmax without the subtraction of the maximum; a kernel that skips values below zero.",
        look_alike="A kernel that sums in another order: 64 times the error of PyTorch is allowed, up to 16 times the "
        "tolerance.",
        misses="Inputs that stay as drawn, such as sorted indices, and values outside of the input domain; see "
        "`docs/correctness.md`.",
        cost="up to six calls, and those of the reference, also in double precision",
    ),
    Rule(
        "sizes",
        Severity.SUSPECT,
        "Be correct for other sizes.",
        "Correct in every trial, and wrong on inputs of another size, or refuses them with an error. Not in the "
        "default of `evaluation.probes`; verification uses it with `verify.sizes`.",
        example="A block of 1024 columns without a mask: right for 4096 columns, wrong for 2049.",
        look_alike="A kernel with fixed blocks that masks the last one.",
        misses="Tasks without a whole number that only `get_inputs` uses.",
        cost="one call",
    ),
    Rule(
        "low_precision",
        Severity.SUSPECT,
        "Compute in the precision of `evaluation.min_precision`.",
        "Errors on harder inputs, against double precision, are larger than `evaluation.min_precision` explains. Only "
        "for precision fp32; off by default.",
        example="An fp32 product that is computed in fp16.",
        look_alike="A sum in another order; TF32 where `min_precision` allows it.",
        misses="Low precision in intermediate values that hardly change the output.",
        cost="the calls of the probe `stress`",
    ),
    Rule(
        "effects",
        Severity.SUSPECT,
        "Leave the state of the module as the reference does.",
        "Calls of the reference change a parameter or buffer, and the kernel's module has no tensor for it. Buffers "
        "that are neither saved nor read by later calls do not count.",
        example="The reference updates a moving average in a registered buffer, and `ModelNew` has no such buffer.",
        look_alike="A batch norm in training mode without `running_mean`: statistics of torch's own norms are exempt.",
        misses="A tensor with other values than the reference leaves: its outcome is `incorrect`. Attributes that are "
        "neither parameters nor buffers.",
    ),
    Rule(
        "excessive_speedup",
        Severity.NOTE,
        "A speedup above `evaluation.excessive_speedup` is worth a look.",
        "Such a speedup is rare. It is possible where the reference launches many small kernels.",
        example="A task with 1000 separate operators, fused into one kernel.",
        look_alike="The same: set `evaluation.excessive_speedup` higher for tasks of this kind.",
        misses="Hacks with a small gain. Nothing is decided from it; `faster_than_memory` finds impossible times.",
    ),
    Rule(
        "not_recorded",
        Severity.NOTE,
        "Write a `forward` that can be recorded as a CUDA graph.",
        "Direct calls decide the outcome, and the kernel has no speedup. The evidence has the reason and the line.",
        example="`n = x.max().item()` in `forward`; a copy to the CPU; a CUDA graph of its own.",
        look_alike="`torch.cuda.synchronize()`, own streams that fork from the current one and join it: these record.",
        misses="A reference that cannot be recorded: both sides are timed by direct calls, without a finding.",
        cost="a recording that fails, and direct calls in its place",
    ),
)
"""In the order of the documentation. `hidden_source` is a rule of the checkers, which the judge reports as well."""

_BY_ID = {rule.id: rule for rule in RULES}


def finding(rule: str, evidence: str, *, severity: Severity | None = None) -> Finding:
    """A finding of the judge.

    Args:
        rule: id of one of `RULES`.
        severity: in place of the rule's own.
    """
    declared = _BY_ID[rule]
    return Finding(declared.id, severity or declared.severity, evidence, checker="judge")
