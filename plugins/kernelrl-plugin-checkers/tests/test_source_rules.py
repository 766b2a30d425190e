"""The rules on the syntax tree: cheats that are found, and honest sources that are left alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelrl_core.types import Candidate, Severity, SourceFacts, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.rules import RULES
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_cuda.examples import ONE_SHOT as ONE_SHOT_CUDA
from kernelrl_plugin_triton.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_triton.kernels import find_kernels

TASK = Task("test", "")
HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(a_ptr + offs, mask=mask) * 2.0, mask=mask)


"""
LAUNCH = "kernel[(triton.cdiv(n, 128),)](a, out, n, BLOCK=128)"


def model(*forward: str, init: tuple[str, ...] = (), before: str = "", launch: bool = True) -> str:
    lines = ["out = torch.empty_like(a)", "n = a.numel()", *([LAUNCH] if launch else []), *(forward or ("return out",))]
    made = "    def __init__(self):\n        super().__init__()\n" + "".join(f"        {line}\n" for line in init)
    return (
        f"{HEAD}{before}\n\nclass ModelNew(nn.Module):\n{made if init else ''}"
        "    def forward(self, a, b):\n" + "".join(f"        {line}\n" for line in lines)
    )


def rules(source: str, config: SourceRulesConfig | None = None) -> dict[str, Severity]:
    candidate = Candidate(source, "triton", facts=SourceFacts(kernels=find_kernels(source)))
    found = SourceRules(config or SourceRulesConfig()).check(candidate, TASK, None)
    return {finding.rule: finding.severity for finding in found}


CHEATS = {
    "no launch, a product": (model("return a @ b", launch=False), "no_kernel"),
    "a product beside the kernel": (model("return a @ b"), "library_compute"),
    "a layer under another name": (
        model("return self.f(out)", init=("Lin = nn.Linear", "self.f = Lin(3, 3)")),
        "library_compute",
    ),
    "a method": (model("return a.matmul(b)"), "library_compute"),
    "a fused operator": (model("return torch.addmm(a, a, b)"), "library_compute"),
    "a raw operator": (model("return torch.ops.aten.mm(a, b)"), "library_compute"),
    "a split name": (model("return getattr(torch, 'mat' + 'mul')(a, b)"), "library_compute"),
    "an operator behind slashes": (model("n = n // 2; return torch.mm(a, b)"), "library_compute"),
    "an operator out of a table": (
        model("return WAYS['p'](a, b)", before="WAYS = {'p': torch.matmul}\n"),
        "library_compute",
    ),
    "an operator out of a table filled later": (
        model("return WAYS['p'](a, b)", before="WAYS = {}\nWAYS['p'] = F.linear\n"),
        "library_compute",
    ),
    "an operator handed on": (model("return list(map(torch.relu, [out]))[0]"), "library_compute"),
    "an operator kept by a partial": (
        model("return f(b)", before="import functools\nf = functools.partial(torch.matmul, torch.ones(3, 3))\n"),
        "library_compute",
    ),
    "functional": (model("return F.softmax(out, dim=0)"), "library_compute"),
    "arithmetic on an input": (model("return a * 2"), "library_compute"),
    "arithmetic on an output": (model("return out + 1"), "library_compute"),
    "arithmetic on a view": (model("return out.view(-1) + 1"), "library_compute"),
    "a helper function": (model("return help(a)", before="def help(x):\n    return torch.exp(x)\n"), "library_compute"),
    "a function on self": (model("return self.f(a)", init=("self.f = lambda x: torch.exp(x)",)), "library_compute"),
    "an alias of torch": (model("return T.exp(a)", before="T = torch\n"), "library_compute"),
    "a compiler": (model("return torch.compile(self.g)(a)"), "library_compute"),
    "a layer made on the spot": (model("return nn.ReLU()(out)"), "library_compute"),
    "a handler that computes": (
        model("try:", "    return out", "except Exception:", "    return torch.exp(a)"),
        "fallback",
    ),
    "looser products": (model("torch.backends.cuda.matmul.allow_tf32 = True", "return out"), "precision_switch"),
    "a cache by address": (
        model("key = a.data_ptr()", "if key in self.c: return self.c[key]", "return out", init=("self.c = {}",)),
        "result_cache",
    ),
    "a patched clock": (model("return out", before="import time\ntime.time = lambda: 0\n"), "timing_patch"),
    "a patched event": (
        model("return out", before="torch.cuda.Event.elapsed_time = lambda *a: 0\n"),
        "timing_patch",
    ),
    "frames": (model("import sys", "sys._getframe(1)", "return out"), "inspection"),
    "frames of an error": (model("error.__traceback__.tb_frame.f_back", "return out"), "inspection"),
    "the judge": (model("from kernelrl_judge.runner_memory import Outputs", "return out"), "inspection"),
    "loaded modules": (model("import sys", "sys.modules.values()", "return out"), "inspection"),
    "threads": (model("return out", before="import threading\n"), "concurrency"),
    "hidden code": (model("exec('x = 1')", "return out"), "dynamic_code"),
}

CLEAN = {
    **{example.name: example.kernel for example in (ONE_SHOT, *FEW_SHOT)},
    "functional that is unused": model(),
    "a layer that holds parameters": model("w = self.f.weight", "return out", init=("self.f = nn.Linear(3, 3)",)),
    "parameters drawn at random": model(init=("self.w = nn.Parameter(torch.randn(8) * 0.1)",)),
    "glue": model("out = out.view(-1).contiguous().transpose(0, 0)", "return out.reshape(n)"),
    "shapes": model("m = a.shape[0] * 2 + 1", "k = max(m, n) // 2", "return out"),
    "an empty class": model(before="class Nothing:\n    pass\n"),
    "an optional import": model(before="try:\n    import nothing\nexcept ImportError:\n    nothing = None\n"),
    "guards": model("assert a.is_contiguous()", "if n < 1: raise ValueError('empty')", "return out"),
    "a cached builder": model(before="import functools\n\n@functools.lru_cache\ndef block(n):\n    return 128\n"),
    "slashes in a text": model(before="URL = 'http://example.org/a//b'\n"),
    "a docstring that says pass": model(before='"""Do not pass torch.matmul here."""\n'),
    "compute that nothing calls": model(before="def reference(x):\n    return torch.exp(x)\n"),
    "a table of types and allocators": model(
        "out = WAYS['zeros'](n, dtype=TYPES[a.dtype])",
        "return out",
        before="TYPES = {torch.float32: torch.float64, torch.bfloat16: tl.bfloat16}\nWAYS = {'zeros': torch.zeros}\n",
    ),
    "a comparison with an operator": model(
        "assert self.act is F.relu or self.act == torch.tanh", "return out", init=("self.act = None",)
    ),
    "a table that is made when it is loaded": model(
        "table = TABLE.contiguous()", "return out", before="TABLE = torch.exp(torch.arange(8))\n"
    ),
    "constants of numbers": model("scale = 1.0 / n", "return out"),
}

RAW = '''\
import cupy
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void twice(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * 2.0f;
}
"""
kernel = cupy.RawKernel(SOURCE, "twice")


def twice(a):
    out = torch.empty_like(a)
    n = a.numel()
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        kernel(((n + 255) // 256,), (256,), (a.data_ptr(), out.data_ptr(), cupy.int32(n)))
    return out


class ModelNew(nn.Module):
    def forward(self, a):
        return twice(a.contiguous())
'''
RAW_LAUNCH = "kernel(((n + 255) // 256,), (256,), (a.data_ptr(), out.data_ptr(), cupy.int32(n)))"
RAW_RETURN = "return twice(a.contiguous())"

CUDA_CHEATS = {
    "no launch": (RAW.replace(RAW_LAUNCH, "pass"), "no_kernel"),
    "a product of cupy": (
        RAW.replace(RAW_RETURN, "return torch.as_tensor(cupy.matmul(cupy.asarray(a), cupy.asarray(twice(a))))"),
        "library_compute",
    ),
    "a sum of cupy": (
        RAW.replace(RAW_RETURN, "return torch.from_dlpack(cupy.sum(cupy.asarray(a)))"),
        "library_compute",
    ),
    "a method of an array": (RAW.replace(RAW_RETURN, "return cupy.asarray(twice(a)).sum()"), "library_compute"),
    "arithmetic on an array": (
        RAW.replace(RAW_RETURN, "b = cupy.from_dlpack(a)\n        return torch.from_dlpack(b * 2)"),
        "library_compute",
    ),
    "arithmetic without a name": (
        RAW.replace(RAW_RETURN, "return torch.from_dlpack(cupy.asarray(a) * 2)"),
        "library_compute",
    ),
    "a library below cupy": (RAW.replace(RAW_RETURN, "return cupy.cuda.cublas.sgemm(a, twice(a))"), "library_compute"),
    "scipy's routines in cupy": (
        RAW.replace("import cupy\n", "import cupy\nimport cupyx.scipy.special\n").replace(
            RAW_RETURN, "return cupyx.scipy.special.erf(twice(a))"
        ),
        "library_compute",
    ),
    "compute in a function named like the kernel": (
        RAW.replace("return out", "return torch.exp(out)"),
        "library_compute",
    ),
}

CUDA_CLEAN = {
    "a raw kernel": RAW,
    "a raw module": RAW.replace(
        'kernel = cupy.RawKernel(SOURCE, "twice")', 'kernel = cupy.RawModule(code=SOURCE).get_function("twice")'
    ),
    "arrays of cupy": RAW.replace("out = torch.empty_like(a)", "a = cupy.asarray(a)\n    out = cupy.empty_like(a)")
    .replace("a.data_ptr(), out.data_ptr()", "a, out")
    .replace("n = a.numel()", "n = a.size")
    .replace("return out", "return torch.from_dlpack(out)"),
    "a kernel that torch compiles": RAW.replace(
        'cupy.RawKernel(SOURCE, "twice")', 'torch.cuda._compile_kernel(SOURCE, "twice")'
    ).replace(RAW_LAUNCH, "kernel(((n + 255) // 256, 1, 1), (256, 1, 1), [a, out, n])"),
}

EXTENSION = ONE_SHOT_CUDA.kernel.replace("scaled_difference(", "sub(").replace(".scaled_difference", ".sub")
EXTENSION = EXTENSION.replace('functions=["scaled_difference"]', 'functions=["sub"]')
LOADING = EXTENSION[EXTENSION.index("extension = load_inline(") : EXTENSION.index("class ModelNew")]
RETURN_SUB = "return extension.sub(a.contiguous(), b.contiguous())"
CUDA_CLEAN |= {
    "a function of an extension that is named like a method": EXTENSION,
    "an extension that is an attribute": EXTENSION.replace(
        "    def forward", "    def __init__(self):\n        self.made = extension\n\n    def forward"
    ).replace("return extension.", "return self.made."),
    "an extension that a function makes": EXTENSION.replace(
        LOADING, "def made():\n" + "".join(f"    {line}\n" for line in [*LOADING.split("\n"), "return extension"])
    ).replace("return extension.sub", "return made().sub"),
}
CUDA_CHEATS |= {
    "a method of an input that is named like an extension": (
        EXTENSION.replace("extension = load_inline(", "a = extension = load_inline(").replace(
            RETURN_SUB, f"extension.sub(a, b)\n        {RETURN_SUB.replace('extension.', 'a.')}"
        ),
        "library_compute",
    ),
}


def cuda_rules(source: str) -> dict[str, Severity]:
    candidate = Candidate(source, "cuda", facts=CudaBackend(CudaConfig()).source_facts(source))
    found = SourceRules(SourceRulesConfig()).check(candidate, TASK, None)
    return {finding.rule: finding.severity for finding in found}


@pytest.mark.parametrize("name", CUDA_CHEATS)
def test_a_cheat_beside_a_cuda_kernel_is_found(name: str) -> None:
    source, rule = CUDA_CHEATS[name]
    assert rule in cuda_rules(source)


@pytest.mark.parametrize("name", CUDA_CLEAN)
def test_an_honest_cuda_source_has_no_finding(name: str) -> None:
    assert cuda_rules(CUDA_CLEAN[name]) == {}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_found(name: str) -> None:
    source, rule = CHEATS[name]
    assert rule in rules(source)


@pytest.mark.parametrize("name", CLEAN)
def test_an_honest_source_has_nothing_above_a_note(name: str) -> None:
    found = rules(CLEAN[name])
    assert {rule: severity for rule, severity in found.items() if severity is not Severity.NOTE} == {}


def test_a_last_reduction_is_only_noted() -> None:
    assert rules(model("return out.sum()")) == {"final_reduction": Severity.NOTE}


def test_evidence_has_line_and_excerpt() -> None:
    source = model("return torch.exp(a)")
    candidate = Candidate(source, "triton", facts=SourceFacts(kernels=find_kernels(source)))
    (finding,) = SourceRules(SourceRulesConfig()).check(candidate, TASK, None)
    assert source.splitlines()[finding.line - 1].strip() == "return torch.exp(a)"
    assert "return torch.exp(a)" in finding.evidence


@pytest.mark.parametrize("source", ["\0", "(" * 100_000, "x = '" + "a" * 5_000_000 + "'", "def f(", "a" * 2_000_000])
def test_a_source_that_defeats_the_parser_ends_within_a_second(source: str) -> None:
    begin = time.monotonic()
    rules(source)
    assert time.monotonic() - begin < 1.0


def test_a_rule_can_be_skipped_and_its_severity_changed() -> None:
    source = model("return torch.exp(a)")
    assert rules(source, SourceRulesConfig(skip=("library_compute",))) == {}
    assert rules(source, SourceRulesConfig(severity={"library_compute": "hack"})) == {"library_compute": Severity.HACK}


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    assert "did you mean 'library_compute'" in "".join(SourceRulesConfig(skip=("library_computes",)).problems())


def test_the_table_of_rules_in_the_readme_is_that_of_the_code() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    table = readme.split("by a test -->\n")[1].split("\n<!-- end of rules")[0].splitlines()
    assert table[2:] == [
        f"| `{rule.id}` | {rule.severity.value} | {rule.statement} | {rule.reason} |" for rule in RULES.values()
    ]
