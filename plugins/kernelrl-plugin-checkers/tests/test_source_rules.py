"""Rules of `source_rules` on sources that break them, and on honest sources that resemble these."""

from __future__ import annotations

import pytest

from kernelrl_core.api.checkers import Candidate, Finding, Severity, SourceFacts
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig, SourceRulesConfig
from kernelrl_plugin_checkers.rules import SOURCE
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_triton.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_triton.kernels import triton_facts

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(a_ptr + offs, mask=offs < n) * 2.0, mask=offs < n)


"""
LAUNCH = "kernel[(triton.cdiv(n, 128),)](a, out, n, BLOCK=128)"


def model(*forward: str, init: tuple[str, ...] = (), before: str = "", base: str = "nn.Module", after: str = "") -> str:
    lines = ["out = torch.empty_like(a)", "n = a.numel()", LAUNCH, *(forward or ("return out",))]
    made = "    def __init__(self):\n        super().__init__()\n" + "".join(f"        {line}\n" for line in init)
    return (
        f"{HEAD}{before}\n\nclass ModelNew({base}):\n{made if init else ''}"
        "    def forward(self, a, b):\n" + "".join(f"        {line}\n" for line in lines) + after
    )


def findings(source: str, config: SourceRulesConfig | None = None, facts: SourceFacts | None = None) -> list[Finding]:
    candidate = Candidate(source, "triton", facts=facts or triton_facts(source))
    return list(SourceRules(config or SourceRulesConfig()).check(candidate, Task("t", ""), None))


def rules(source: str, config: SourceRulesConfig | None = None) -> dict[str, str]:
    return {finding.rule: finding.severity.value for finding in findings(source, config)}


def handling(*lines: str) -> tuple[str, ...]:
    return "try:", f"    {LAUNCH}", "except Exception:", *(f"    {line}" for line in lines), "return out"


REFERENCE = "class Model(nn.Module):\n    def forward(self, a, b):\n        return torch.relu(a)\n"

BROKEN = {
    "no launch": (model("return a").replace(LAUNCH, "pass"), "no_kernel"),
    "a handler with a function of torch": (model(*handling("return torch.exp(a)")), "fallback"),
    "a handler with a functional": (model(*handling("out = F.softmax(a, dim=0)")), "fallback"),
    "a handler with a product": (model(*handling("return a @ b")), "fallback"),
    "a handler with a method": (model(*handling("return a.float().softmax(-1)")), "fallback"),
    "a handler with a layer": (model(*handling("return self.f(a)"), init=("self.f = nn.Linear(3, 3)",)), "fallback"),
    "a handler in a helper": (
        model(
            "return help(a)",
            before="def help(x):\n    try:\n        pass\n    except RuntimeError:\n        return torch.exp(x)\n",
        ),
        "fallback",
    ),
    "a reference from elsewhere": (model(base="Model", before="from task import Model\n"), "inherited_reference"),
    "a reference that is not there": (model(base="Model"), "inherited_reference"),
    "the parent's forward": (
        model("return super().forward(a, b)", base="Model", before=REFERENCE),
        "inherited_reference",
    ),
    "no forward": (
        HEAD + REFERENCE + "\n\nclass ModelNew(Model):\n    def __init__(self):\n        super().__init__()\n",
        "inherited_reference",
    ),
    "a product beside the kernel": (model("return a @ b"), "library_compute"),
    "a function of torch": (model("return torch.addmm(a, a, b)"), "library_compute"),
    "a functional": (model("return F.gelu(out)"), "library_compute"),
    "a raw operator": (model("return torch.ops.aten.mm(a, b)"), "library_compute"),
    "an alias of torch": (model("return T.exp(a)", before="T = torch\n"), "library_compute"),
    "a compiler": (model("return torch.compile(self.g)(a)"), "library_compute"),
    "a layer made in place": (model("return nn.ReLU()(out)"), "library_compute"),
    "a helper function": (model("return help(a)", before="def help(x):\n    return torch.exp(x)\n"), "library_compute"),
    "frames": (model("import sys", "sys._getframe(1)", "return out"), "process_access"),
    "frames of an error": (model("error.__traceback__.tb_frame.f_back", "return out"), "process_access"),
    "a patched clock": (model(before="import time\ntime.time = lambda: 0\n"), "process_access"),
    "a patched method": (model(before="torch.cuda.Event.elapsed_time = lambda *a: 0\n"), "process_access"),
    "a setting": (model("torch.backends.cuda.matmul.allow_tf32 = True", "return out"), "process_access"),
    "threads": (model(before="import threading\n"), "process_access"),
    "code from text": (model(before="exec('x = 1')\n"), "process_access"),
    "the state of generators": (model("torch.get_rng_state()", "return out"), "process_access"),
}
CLEAN = {
    "the worked example": ONE_SHOT.kernel,
    **{example.name: example.kernel for example in FEW_SHOT},
    "a handler that raises again": model(*handling("torch.isnan(a)", "raise")),
    "a handler that tries again": model(*handling("out = out.contiguous()", LAUNCH)),
    "a handler that logs and collects": model(
        *handling("logger.log(1, 'again')", "seen.add(n)", "names.sort()"),
        before="import logging\nlogger, seen, names\n",
    ),
    "an optional import": model(
        before="try:\n    import apex_tools\nexcept ImportError:\n    apex_tools = torch.relu\n"
    ),
    "a handler that nothing reaches": model(
        before="def unused(x):\n    try:\n        pass\n    except ValueError:\n        return torch.exp(x)\n"
    ),
    "a reference of the file with a forward of its own": model(base="Model", before=REFERENCE),
    "compute that nothing calls": model(before="def reference(x):\n    return torch.exp(x)\n"),
    "arranging": model("return F.pad(out, (0, 1)).t().contiguous().view(-1).to(torch.float16)"),
    "questions to torch": model(
        "if torch.is_floating_point(a) and torch.equal(a, b):", "    raise ValueError", "return out"
    ),
    "a layer that holds parameters": model("w = self.f.weight", "return out", init=("self.f = nn.Linear(3, 3)",)),
    "a benchmark": model(
        after="\n\nif __name__ == '__main__':\n    import threading, time\n"
        "    a = torch.randn(3)\n    time.time = None\n    print(torch.relu(a), exec('1'))\n"
    ),
    "a model in evaluation": model("self.f.eval()", "return out", init=("self.f = nn.Identity()",)),
    "a docstring": model(before='"""Do not use torch.matmul, sys._getframe or exec here."""\n'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_reported_with_its_severity(name: str) -> None:
    source, rule = BROKEN[name]
    expected = next(one.severity.value for one in SOURCE if one.id == rule)
    assert rules(source)[rule] == expected


@pytest.mark.parametrize("name", CLEAN)
def test_an_honest_look_alike_has_no_finding(name: str) -> None:
    assert rules(CLEAN[name]) == {}


def test_five_rules_are_more_than_a_note() -> None:
    above = {rule.id for rule in SOURCE if rule.severity is not Severity.NOTE}
    assert above == {"no_kernel", "fallback", "inherited_reference", "hidden_source", "cpu_libraries"}


def test_evidence_has_line_and_excerpt() -> None:
    source = model("return torch.exp(a)")
    (finding,) = findings(source)
    assert finding.line is not None
    assert source.splitlines()[finding.line - 1].strip() == "return torch.exp(a)"
    assert "return torch.exp(a)" in finding.evidence


CPP = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
// at::matmul(x, x) would be shorter
__global__ void twice(const float* a, float* out) { out[threadIdx.x] = 2 * a[threadIdx.x]; }
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2, "use at::matmul(x, x) // instead");
  auto out = torch::empty_like(x);
  twice<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>());
  LINE
  return out;
}
"""
ext = load_inline(name="e", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x)
'''


def cpp_notes(line: str) -> list[Finding]:
    source = CPP.replace("LINE", line)
    return findings(source, facts=CudaBackend(CudaConfig()).source_facts(source))


@pytest.mark.parametrize(
    "line",
    [
        "out = at::matmul(x, x);",
        "at::mm_out(out, x, x);",
        "out = torch::nn::functional::gelu(x);",
        "out = x.matmul(x);",
        "cublasSgemm(h, t, t, n, n, n);",
        "cudnnConvolutionForward(h);",
    ],
)
def test_library_compute_in_cpp_is_a_note_with_its_line(line: str) -> None:
    (finding,) = cpp_notes(line)
    assert (finding.rule, finding.severity.value, finding.line) == ("library_compute", "note", 12)
    assert line in finding.evidence


@pytest.mark.parametrize(
    "line",
    ["cublasCreate(&h);", "mine::matmul(x, x);", "/* cublasSgemm(h); */", "softmax_kernel<<<1, 1>>>(x);", "'\"';"],
)
def test_cpp_that_resembles_library_compute_has_no_note(line: str) -> None:
    assert cpp_notes(line) == []


def test_a_rule_can_be_skipped_and_its_severity_changed() -> None:
    source = model("return torch.exp(a)")
    assert rules(source, SourceRulesConfig(skip=("library_compute",))) == {}
    assert rules(source, SourceRulesConfig(severity={"library_compute": "hack"})) == {"library_compute": "hack"}


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    assert "did you mean 'library_compute'" in "".join(SourceRulesConfig(skip=("library_computes",)).problems())
    assert "did you mean 'library_operators'" in "".join(EvaluationRulesConfig(skip=("library_operator",)).problems())
