"""Rewriting of rows of our own with the columns of the public corpora; `samples/FORMS.md` lists their forms."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import BuildStatus, Outcome
from kernelrl_core.api.tasks import parse_task_source
from kernelrl_plugin_raicl.rewriting import Pair, rewrite_archive, rewrite_inductor
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import DEADLINE_S

HERE = Path(__file__).parent / "samples"
_INTERNALS = re.compile(
    r"_inductor|torch\._C|assert_size_stride|triton_helpers|tl_math|triton_(?:poi|per|red)|\bcall\(|async_compile|"
    r"get_raw_stream|reinterpret_tensor|extern_kernels|PYBIND11_MODULE|TORCH_EXTENSION_NAME|\bfn\b"
)


def _rows_module() -> Any:
    spec = importlib.util.spec_from_file_location("raicl_sample_rows", HERE / "rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ROWS = _rows_module()
KERNELBOOK = list(ROWS.samples("kernelbook"))
ARCHIVE = list(ROWS.samples("archive"))
ALL = [*KERNELBOOK, *ARCHIVE]
RUNNING = [sample for sample in KERNELBOOK if sample.facts["runs"] == "yes"]
"""Those that the interpreter can execute: it has no libdevice."""
PATIENT = {"timeout_s": DEADLINE_S}
"""Settings of kernels that take seconds in the interpreter, and minutes on a busy machine."""
ONE_OF_EACH_FORM = list({sample.form: sample for sample in ARCHIVE}.values())


def rewritten(sample: Any) -> Pair:
    columns = sample.columns
    if sample.corpus == "kernelbook":
        return rewrite_inductor(columns["python_code"], columns["triton_code"], sample.name)
    return rewrite_archive(columns["PyTorch_Code_Module"], columns["PyTorch_Code_Functional"], columns["CUDA_Code"])


def named(sample: Any) -> str:
    return f"{sample.form}-{sample.name}"


def test_there_are_sixty_samples_and_two_of_each_listed_form() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (HERE / "FORMS.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    counts = Counter(sample.form for sample in ALL)
    assert set(counts) == set(listed)
    assert min(counts.values()) >= 2
    assert len(ALL) >= 60


@pytest.mark.parametrize("sample", ALL, ids=named)
def test_a_sample_is_rewritten_into_a_task_and_a_candidate(sample: Any) -> None:
    pair = rewritten(sample)
    assert pair == rewritten(sample)
    parse_task_source(pair.reference, sample.name)
    names = [item.name for item in ast.parse(pair.kernel).body if isinstance(item, ast.ClassDef)]
    assert "ModelNew" in names
    assert not _INTERNALS.findall(pair.kernel)
    assert pair.fixed_sizes == (sample.facts.get("fixed") == "yes")


@pytest.mark.slow
@pytest.mark.parametrize("sample", [item for item in RUNNING if item.facts["fixed"] == "yes"], ids=named)
def test_a_kernel_for_fixed_sizes_is_correct(evaluate: Evaluate, sample: Any) -> None:
    pair = rewritten(sample)
    options = {"mode": "interpreter"}
    found = evaluate(make_request(pair.kernel, pair.reference, "triton", backend_options=options, settings=PATIENT))
    assert found.outcome is Outcome.CORRECT, found.message


@pytest.mark.slow
@pytest.mark.parametrize("sample", [item for item in RUNNING if item.facts["fixed"] == "no"], ids=named)
def test_a_kernel_that_reads_its_sizes_is_correct_for_others_too(evaluate: Evaluate, sample: Any) -> None:
    pair = rewritten(sample)
    other = re.sub(r"torch\.rand\(\[[^]]*\]\)", "torch.rand([3, 7, 11])", pair.reference)
    options = {"mode": "interpreter"}
    found = evaluate(make_request(pair.kernel, other, "triton", backend_options=options, settings=PATIENT))
    assert found.outcome is Outcome.CORRECT, found.message


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("sample", ONE_OF_EACH_FORM, ids=named)
def test_a_rewritten_cuda_kernel_compiles(evaluate: Evaluate, sample: Any) -> None:
    pair = rewritten(sample)
    options = {"mode": "compile", "arch": "9.0"}
    found = evaluate(make_request(pair.kernel, pair.reference, "cuda", backend_options=options))
    assert found.build is BuildStatus.BUILT, found.message


@pytest.mark.gpu
@pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("sample", ALL, ids=named)
def test_a_rewritten_kernel_is_correct_on_a_gpu(evaluate: Evaluate, sample: Any) -> None:
    if sample.name == "Configured":
        pytest.skip("arguments of constructors are plain data for an evaluator")
    pair = rewritten(sample)
    backend = "triton" if sample.corpus == "kernelbook" else "cuda"
    found = evaluate(make_request(pair.kernel, pair.reference, backend, backend_options={"mode": "gpu"}))
    assert found.outcome is Outcome.CORRECT, found.message
