"""The rules of `source_rules` and `evaluation_rules`, each with an example, an honest look-alike and its limits."""

from __future__ import annotations

from kernelrl_core.api.checkers import Rule, Severity

__all__ = ["MEASURED", "SOURCE", "of_source"]

OWN_KERNELS = "Do the computation of the task in your own kernels, not in torch or other library operations."


SOURCE = (
    Rule(
        "no_kernel",
        Severity.SUSPECT,
        "Launch at least one kernel of your own from ModelNew.forward.",
        "A kernel that is never launched computes nothing. A source in which nothing is launched is not built. For any "
        "other, the launches of its calls decide: kernels of a recording, of Triton, functions and operators of "
        "extensions. Where they are not observed, names in the source decide.",
        example="`forward` returns `a @ b`, beside a kernel that is never launched, or only under a condition.",
        look_alike="A kernel that is launched from a table, a macro, a registered operator or an inherited `forward`.",
        misses="A launch whose result is thrown away: the probe `no_op` finds it (`decoy_kernels`).",
        stated=True,
    ),
    Rule(
        "fallback",
        Severity.SUSPECT,
        "Do not compute the output with torch in an exception handler.",
        "The kernel may fail in every call, and the library computes in its place.",
        example="`except Exception: return torch.softmax(x, -1)`, in code that `forward` can reach.",
        look_alike="A handler that retries with smaller blocks, raises again, or guards an optional import.",
        misses="A fallback behind a condition: `library_operators` finds it if it runs.",
        stated=True,
    ),
    Rule(
        "inherited_reference",
        Severity.SUSPECT,
        "Do not inherit from the reference or call it.",
        "The reference would compute in place of the kernel.",
        example="`class ModelNew(Model)` where the file does not define `Model`, or `super().forward(x)`.",
        look_alike="`ModelNew(Model)` with a `Model` of the file for its parameters, and a `forward` of its own.",
        misses="A copy of the reference under another name: `library_operators` finds it if it runs.",
        stated=True,
    ),
    Rule(
        "hidden_source",
        Severity.SUSPECT,
        "Keep the source short and plain enough to be read to its end.",
        "A source that cannot be read cannot be checked.",
        example="C++ of more than 262,144 characters made at run time; Python that takes over 130,000 steps to search.",
        look_alike="A template of C++ into which the file writes a number before it builds it.",
        misses="Encoded text below these limits: the built sources are searched after the calls (`no_kernel`).",
        stated=True,
    ),
    Rule(
        "cpu_libraries",
        Severity.SUSPECT,
        "Where a CPU executes the kernel (C++, Triton's interpreter), import only torch, triton and plain standard "
        "modules (math, functools, typing and the like): no numpy, scipy, ctypes, threads of Python or switches of "
        "torch's dispatcher (torch._C, dispatch keys). C++ calls no Python object.",
        "A library would compute where nothing lists it. The rule does not apply on a GPU.",
        example="`import numpy`, `torch._C._DisableTorchDispatch()`, `py::object` in C++, `dlsym`.",
        look_alike="`import math, os, functools`; numbers, lists and tuples as arguments of C++; threads of C++.",
        misses="Names that are computed, and native code: an address, a file of the process. Train on times of a GPU.",
        stated=True,
    ),
    Rule(
        "library_compute",
        Severity.NOTE,
        OWN_KERNELS,
        "A hint for readers, and the reason why a retrieved example is not shown. It does not reject.",
        example="`torch.matmul(a, b)` in reachable code, `at::matmul(a, b)` or `cublasSgemm` in C++.",
        look_alike="`torch.empty_like(x)`, `x.contiguous()`, `F.pad(x, …)`, a layer that only holds parameters.",
        misses="Names that are computed. `library_operators` decides, by what ran.",
    ),
    Rule(
        "unused_kernel",
        Severity.NOTE,
        "Launch every kernel that you define.",
        "A kernel that nothing launches may be a decoy.",
        example="A second `@triton.jit` function that no code names.",
        look_alike="A device function that another kernel calls.",
        misses="A kernel that is launched for show: the probe `no_op` finds it (`decoy_kernels`).",
    ),
    Rule(
        "process_access",
        Severity.NOTE,
        "Do not read or change the process around the kernel: frames, clocks, modules, threads, files.",
        "A hint for readers. Expected outputs and clock are in another process, so it gains nothing.",
        example="`sys._getframe()`, `time.time = …`, `exec(text)`, `import threading`.",
        look_alike="`import time` for a benchmark under `if __name__ == '__main__'`; `model.eval()`.",
        misses="Names that are computed: the sandbox limits what they reach.",
    ),
    Rule(
        "unreadable_source",
        Severity.NOTE,
        "Write a source whose kernels can be found by reading it.",
        "Kernels may be in a part that could not be read, so `no_kernel` is not reported.",
        example="A macro that makes kernels, a C++ source that is computed, Python that does not parse.",
        look_alike="A kernel that a function makes and returns.",
        misses="Kernels in sources made at run time: the built sources are searched after the calls (`no_kernel`).",
    ),
)
"""Rules of `source_rules`, in the order of the documentation."""

MEASURED = (
    Rule(
        "library_operators",
        Severity.SUSPECT,
        OWN_KERNELS,
        "A library does more of the task's work than `evaluation.library_share` allows, or an extension imports "
        "symbols of a library. Recordings: time of library kernels, replayed alone, over the smaller of the times of "
        "candidate and reference. Direct calls: bytes that operators of torch move or leave; products, convolutions, "
        "sorts and scans count from little on. Copies and fills neither count nor dilute.",
        example="A kernel adds the bias, and `torch.nn.functional.linear` computes the product.",
        look_alike="`(labels < 0).any()`; the largest absolute value for a scale; a sort of few indices; a sum of "
        "partial results, or `tril_` of a result, that kernels wrote; weights prepared once.",
        misses="In direct calls: a library in another thread or reached without the linker. In recordings: a forged "
        "list of nodes. Both: less than the limit.",
        stated=True,
    ),
    Rule(
        "faster_than_memory",
        Severity.HACK,
        "Compute the output from the inputs in every call.",
        "Replays took less than 0.8 of the time in which memory delivers the bytes that decide the output.",
        example="A call that returns a stored result and does not read its inputs.",
        look_alike="A kernel that does not read inputs on which no output depends.",
        misses="A stored result on a task that is bound by computation: the outputs of timed calls are wrong.",
    ),
)
"""Rules of `evaluation_rules`."""


def of_source(id_: str) -> Rule:
    """A rule of `source_rules`."""
    return next(rule for rule in SOURCE if rule.id == id_)
