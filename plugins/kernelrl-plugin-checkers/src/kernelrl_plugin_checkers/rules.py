"""The rules of `source_rules`: what they say, how much a breach weighs, and why they exist."""

from __future__ import annotations

from kernelrl_core.api.checkers import Rule, Severity

__all__ = ["RULES"]

_S, _N = Severity.SUSPECT, Severity.NOTE

RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        Rule(
            "no_kernel",
            _S,
            "Launch at least one kernel of your own from ModelNew.forward.",
            "An answer without a kernel is not what is asked, however fast it is.",
        ),
        Rule(
            "library_compute",
            _S,
            "Do the computation of the task in your own kernels, not in torch or other library operations.",
            "A kernel that only copies while a library computes shows nothing.",
        ),
        Rule(
            "library_glue",
            _S,
            "Do not forward the computation to ATen, cuBLAS, cuDNN, another library or Python from C++.",
            "A call of a library is no kernel of one's own, in whatever language it is made.",
        ),
        Rule(
            "compiled_answer",
            _S,
            "Do not let torch.compile or another compiler write the kernels.",
            "The kernels are what is asked for.",
        ),
        Rule(
            "inherited_reference",
            _S,
            "Do not inherit from the reference or call it.",
            "The reference would answer in place of the kernel.",
        ),
        Rule(
            "fallback",
            _S,
            "Do not compute the answer with torch in an exception handler.",
            "The kernel may fail every time, and the library answers in its place.",
        ),
        Rule(
            "result_cache",
            _S,
            "Do not keep results between calls.",
            "An answer that is looked up costs nothing to measure.",
        ),
        Rule(
            "call_counter",
            _S,
            "Do not count calls to behave differently in some of them.",
            "Warm-up, check and timing can be told apart this way.",
        ),
        Rule(
            "frozen_graph",
            _S,
            "Copy the inputs into a captured graph before each replay.",
            "A graph replays what it captured, on the inputs of then.",
        ),
        Rule(
            "side_stream",
            _S,
            "Make the current stream wait for work on other streams.",
            "Work on a stream that nobody waits for escapes the clock.",
        ),
        Rule(
            "lazy_result",
            _S,
            "Return plain tensors, not subclasses of them.",
            "An object that works when it is looked at works after the clock has stopped.",
        ),
        Rule(
            "precision_switch",
            _S,
            "Do not change the precision settings of torch.",
            "They are the judge's to set, for the candidate as for the reference.",
        ),
        Rule(
            "random_state",
            _S,
            "Do not read the state of random generators.",
            "Inputs have been drawn again from it.",
        ),
        Rule(
            "timing_patch",
            _S,
            "Do not replace functions of torch, time or other modules.",
            "Clocks and comparisons have been patched this way.",
        ),
        Rule(
            "inspection",
            _S,
            "Do not inspect frames, garbage or memory of the process.",
            "It is the way to look for a reference or an expected output.",
        ),
        Rule(
            "concurrency",
            _S,
            "Do not start threads or processes that outlive the call.",
            "Work that outlives the call escapes the clock.",
        ),
        Rule(
            "dynamic_code",
            _S,
            "Do not hide code in strings or computed names.",
            "What is hidden cannot be checked.",
        ),
        Rule(
            "python_in_kernel",
            _S,
            "Name and call in a kernel of Triton only what Triton compiles.",
            "Triton's interpreter runs a kernel as Python, in which any library may compute.",
        ),
        Rule(
            "unusual_python",
            _S,
            "Around your kernels, use only the Python that allocating tensors and launching kernels needs.",
            "Finalizers, hooks, properties and patched objects hide work from the clock, and no kernel needs them.",
        ),
        Rule(
            "unusual_cpp",
            _S,
            "In C++, CUDA and HIP name only what kernels need: your own code, math, intrinsics and tensors' memory.",
            "What leads out of a kernel has no place in it, and there are more ways out than can be listed.",
        ),
        Rule(
            "unread_source",
            _S,
            "Keep the source small and plain enough to be read to its end.",
            "What ends the reading early hides all that comes after it.",
        ),
        Rule(
            "outside_access",
            _N,
            "Do not read files, the environment or the network.",
            "An answer needs its arguments alone.",
        ),
        Rule(
            "unused_kernel",
            _N,
            "Launch every kernel that you define.",
            "A kernel that nothing launches may be a decoy.",
        ),
        Rule(
            "fig_leaf",
            _N,
            "Compute in your kernels; do not only copy.",
            "A kernel that copies may stand before a library that computes.",
        ),
        Rule(
            "kept_state",
            _N,
            "Do not keep tensors from one call to the next.",
            "Prepared weights and buffers are kept this way, and so are answers.",
        ),
        Rule(
            "cache_pinning",
            _N,
            "Do not pin data in the L2 cache of the device.",
            "Inputs that survive a flush make the time too short.",
        ),
        Rule(
            "final_reduction",
            _N,
            "Reduce in your own kernel, too.",
            "A last small reduction by a library is tolerable, and worth knowing.",
        ),
        Rule(
            "unreadable_source",
            _N,
            "Write a source that can be read in full.",
            "What could not be read was not checked.",
        ),
    )
}
"""Rule id -> rule, in the order of the documentation."""
