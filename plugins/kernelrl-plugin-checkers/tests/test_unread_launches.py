"""`no_kernel` is reported for sources that can be read; others get a note, and the build reports their errors."""

from __future__ import annotations

import pytest

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.api.checkers import Candidate, Finding
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_triton.backend import TritonBackend
from kernelrl_plugin_triton.config import TritonConfig

KERNEL = "__global__ void twice(const float* a, float* out) { out[threadIdx.x] = 2 * a[threadIdx.x]; }\n"
HOST = "torch::Tensor run(torch::Tensor a) { auto out = torch::empty_like(a); LAUNCH return out; }\n"
LAUNCH = "twice<<<1, 32>>>(a.data_ptr<float>(), out.data_ptr<float>());"


def cuda(text: str, arguments: str = "cpp_sources='torch::Tensor run(torch::Tensor a);', functions=['run']") -> str:
    return f'''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
{text}"""
ext = load_inline(name="ext", cuda_sources=SOURCE, {arguments})


class ModelNew(torch.nn.Module):
    def forward(self, a):
        return ext.run(a)
'''


def triton(kernel: str, forward: str) -> str:
    return f"""\
import torch
import triton
import triton.language as tl


def launch(kernel, *arguments):
    kernel[(1,)](*arguments)


{kernel}

class ModelNew(torch.nn.Module):
    def forward(self, a):
        out = torch.empty_like(a)
        {forward}
        return out
"""


def found(source: str, backend: str) -> dict[str, Finding]:
    made = CudaBackend(CudaConfig()) if backend == "cuda" else TritonBackend(TritonConfig())
    candidate = Candidate(source, backend, facts=made.source_facts(source))
    return {finding.rule: finding for finding in SourceRules(SourceRulesConfig()).check(candidate, Task("t", ""), None)}


PASTED = HOST.replace("LAUNCH", "RUN(ice, a, out)")
WHOLE = KERNEL + HOST.replace("LAUNCH", LAUNCH)
BODY = "\n    tl.store(out, tl.load(a) * 2.0)\n"

UNREAD = {
    "a bracket that is never closed": (cuda(WHOLE.replace("a) {", "a) { if (true) {")), "never closed"),
    "a comment that is never closed": (cuda(WHOLE + "/* and then"), "never closed"),
    "a macro that makes the kernel": (
        cuda(
            "#define MAKE(NAME, F) __global__ void NAME(const float* a, float* out) { out[0] = F * a[0]; }\n"
            "MAKE(twice, 2)\n" + HOST.replace("LAUNCH", LAUNCH)
        ),
        "the macro MAKE makes kernels",
    ),
    "a macro that makes the name of the kernel": (
        cuda(f"{KERNEL}#define RUN(NAME, a, out) {LAUNCH.replace('twice', 'tw##NAME')}\n" + PASTED),
        "the macro RUN makes names",
    ),
    "a computed source": (cuda(WHOLE).replace("cuda_sources=SOURCE", "cuda_sources=render(SOURCE)"), "cuda_sources"),
    "arguments from a mapping": (cuda(WHOLE).replace("cuda_sources=SOURCE", "**options()"), "cuda_sources"),
}


@pytest.mark.parametrize(("source", "why"), UNREAD.values(), ids=UNREAD)
def test_an_unreadable_source_is_a_note_and_no_suspect(source: str, why: str) -> None:
    findings = found(source, "cuda")
    assert "no_kernel" not in findings
    assert why in findings["unreadable_source"].evidence
    assert findings["unreadable_source"].severity == "note"


def test_a_wrapper_of_jit_is_a_note_and_no_suspect() -> None:
    source = triton(f"mine = lambda f: triton.jit(f)\n\n\n@mine\ndef twice(a, out):{BODY}", "twice[(1,)](a, out)")
    findings = found(source, "triton")
    assert "no_kernel" not in findings
    assert "line 10: this use of triton.jit is not supported" in findings["unreadable_source"].evidence


READ = {
    "a bound function that nothing defines": cuda(WHOLE).replace("['run']", "['nope']"),
    "a macro that launches": cuda(
        f"{KERNEL}#define RUN(a, out) {LAUNCH}\n" + HOST.replace("LAUNCH", "RUN(a, out)"),
    ),
    "a lambda in the module": cuda(
        KERNEL + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", [](torch::Tensor a) { auto out = '
        f"torch::empty_like(a); {LAUNCH} return out; }}); }}\n",
        "cpp_sources=''",
    ),
    "an operator that TORCH_LIBRARY registers": cuda(
        KERNEL + "torch::Tensor body(torch::Tensor a) { auto out = torch::empty_like(a); " + LAUNCH + " return out; }\n"
        'TORCH_LIBRARY(mine, m) { m.def("run(Tensor a) -> Tensor"); }\n'
        'TORCH_LIBRARY_IMPL(mine, CUDA, m) { m.impl("run", &body); }\n',
        "cpp_sources=''",
    ),
}


@pytest.mark.parametrize("source", READ.values(), ids=READ)
def test_launches_through_macros_and_lambdas_are_followed(source: str) -> None:
    assert not {"no_kernel", "unreadable_source"} & set(found(source, "cuda"))


@pytest.mark.parametrize(
    "source",
    [
        triton(f"@triton.jit\ndef twice(a, out):{BODY}", "launch(twice, a, out)"),
        triton(f"def twice(a, out):{BODY}\n\ncompiled = triton.jit(twice)", "compiled[(1,)](a, out)"),
        triton(
            "def make():\n    @triton.jit\n    def twice(a, b):\n        tl.store(b, tl.load(a))\n    return twice\n",
            "make()[(1,)](a, out)",
        ),
    ],
    ids=["a kernel as argument", "jit as a function", "a function that makes the kernel"],
)
def test_launches_through_python_values_are_followed(source: str) -> None:
    assert not {"no_kernel", "unreadable_source"} & set(found(source, "triton"))


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        (cuda(HOST.replace("LAUNCH", "")), "cuda"),
        (cuda(KERNEL + HOST.replace("LAUNCH", "")), "cuda"),
        (cuda("#define CHECK(x) TORCH_CHECK(x.is_cuda())\n" + HOST.replace("LAUNCH", "CHECK(a);")), "cuda"),
        (triton(f"@triton.jit\ndef twice(a, out):{BODY}", "out.copy_(a)"), "triton"),
        (triton("", "launch(print, a)"), "triton"),
    ],
)
def test_a_readable_source_that_launches_nothing_is_reported(source: str, backend: str) -> None:
    assert "no_kernel" in found(source, backend)


CPP_MACRO = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#define BIND(name) m.def(#name, &name);
torch::Tensor twice(torch::Tensor a) { return a; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { BIND(twice) }
"""
ext = load_inline(name="ext", cpp_sources=SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a):
        return ext.twice(a)
'''


@pytest.mark.parametrize(
    "source",
    [
        CPP_MACRO,
        CPP_MACRO.replace("BIND(twice)", 'm.def("twice", &twice);').replace("ext.twice", 'getattr(ext, "tw" + "ice")'),
    ],
    ids=["bound by a macro", "called by a computed name"],
)
def test_functions_whose_names_cannot_be_read_are_left_to_the_run(source: str) -> None:
    candidate = Candidate(source, "cpp", facts=extension_facts(source, "cpp"))
    rules = {one.rule for one in SourceRules(SourceRulesConfig()).check(candidate, Task("t", ""), None)}
    assert "no_kernel" not in rules
    assert "unreadable_source" in rules


@pytest.mark.parametrize(
    "model",
    [
        "class ModelNew(torch.nn.Sequential):\n    def __init__(self):\n        super().__init__(Layer())\n",
        "class ModelNew(torch.nn.Module):\n    forward = lambda self, a: run(a)\n",
        "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.forward = {'run': run}['run']\n",
    ],
    ids=["a sequence", "a lambda", "an assigned forward"],
)
def test_a_forward_of_any_form_is_left_to_the_run(model: str) -> None:
    source = triton(f"@triton.jit\ndef twice(a, out):{BODY}", "twice[(1,)](a, out)")
    source = source.replace("class ModelNew", "class Layer") + "\n\nrun = Layer()\n\n\n" + model
    assert not {"no_kernel", "unreadable_source"} & set(found(source, "triton"))
