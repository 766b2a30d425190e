"""What a GPU does to its judges and they to it: faults, memory, kernels compiled at run time, timing, several GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.interfaces.gpus import visible_gpus
from kernelrl_core.interfaces.requirements import gpu_vendors
from kernelrl_core.storage import cache_directory
from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Outcome, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]
needs_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="needs cupy")
needs_two_gpus = pytest.mark.skipif(
    "nvidia" not in gpu_vendors() or len(visible_gpus()) < 2, reason="needs two NVIDIA GPUs"
)

SOON_S = 15.0
"""For a candidate after one that did harm: a context, Triton's compiler and five trials take a tenth of it."""
MEMORY_LEFT_MIB = 256
LARGE_LEFT_MIB = 12 << 10
"""What one judge may keep for itself and for its next runner: three times a 48th part of an H200's memory."""
LANES_PER_GPU = 2

_SOURCE = '''\
SOURCE = r"""
extern "C" __global__ void twice_relu(const float* x, float* y, int n) {
    // HERE
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
"""
'''
NVRTC = f"""\
import torch

{_SOURCE}
kernel = torch.cuda._compile_kernel(SOURCE, "twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernel(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), args=[x, y, n])
        return y
"""
RAW_KERNEL = f"""\
import cupy
import torch

{_SOURCE}
kernel = cupy.RawKernel(SOURCE, "twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel(((n + 127) // 128,), (128,), (x.data_ptr(), y.data_ptr(), cupy.int32(n)))
        return y
"""
RAW_MODULE = f"""\
import cupy
import torch

{_SOURCE}
kernel = cupy.RawModule(code=SOURCE).get_function("twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        a = cupy.from_dlpack(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            b = cupy.empty_like(a)
            kernel(((a.size + 127) // 128,), (128,), (a, b, cupy.int32(a.size)))
        return torch.from_dlpack(b)
"""
MANY_ROWS = """\
import torch
import torch.nn as nn

rows = 1 << 27
columns = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


class GpuBench:
    """A local evaluator on the GPUs, and a loop to run it in."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self.lanes = LANES_PER_GPU * len(visible_gpus())
        self.runner = asyncio.Runner()
        self.evaluator = self.runner.run(self._made())

    async def _made(self) -> LocalEvaluator:
        return LocalEvaluator(LocalConfig(gpu_workers=LANES_PER_GPU))

    def judge(self, source: str, **asked: Any) -> Evaluation:
        return self.judge_all([source], **asked)[0]

    def judge_all(
        self, sources: Sequence[str], *, backend: str = "triton", reference: str = "", **settings: Any
    ) -> list[Evaluation]:
        """Judge several candidates at once."""

        async def judged() -> list[Evaluation]:
            requests = [_request(source, backend, reference or self.reference, settings) for source in sources]
            return await asyncio.gather(*map(self.evaluator.evaluate, requests))

        return self.runner.run(judged())

    def close(self) -> None:
        self.runner.run(self.evaluator.aclose())
        self.runner.close()


def _request(source: str, backend: str, reference: str, settings: dict[str, Any]) -> EvaluationRequest:
    return EvaluationRequest(
        task_id="test/gpu",
        task_source=reference,
        task_sha256=sha256_text(reference),
        source=source,
        source_sha256=sha256_text(source),
        backend=backend,
        backend_options={"mode": "gpu"},
        settings=EvaluationSettings(**settings),
        seed="ab" * 16,
        api_version=API_VERSION,
    )


@pytest.fixture(scope="module")
def gpu(reference: str) -> Iterator[GpuBench]:
    made = GpuBench(reference)
    yield made
    made.close()


@pytest.fixture
def fresh(reference: str) -> Iterator[Any]:
    """Makes evaluators that see the environment as it is now."""
    made: list[GpuBench] = []

    def make() -> GpuBench:
        made.append(GpuBench(reference))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture(scope="module")
def large(reference: str) -> str:
    """A reference whose calls take long enough to be timed well."""
    return reference.replace("torch.randn(300)", "torch.randn(1 << 22)")


def _assert_correct(evaluation: Evaluation) -> None:
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail


def _assert_next_is_correct(gpu: GpuBench, good: str) -> None:
    begin = time.monotonic()
    _assert_correct(gpu.judge(good))
    assert time.monotonic() - begin < SOON_S


def _used_mib() -> int:
    """Memory in use on all GPUs of the machine, in MiB."""
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return sum(int(line) for line in done.stdout.split())


# --- harm -----------------------------------------------------------------------------------------------------------


def test_an_illegal_access_is_a_runtime_error_and_the_next_candidate_is_correct(gpu: GpuBench, good: str) -> None:
    beyond = good.replace("tl.store(y_ptr + offs,", "tl.store(y_ptr + offs.to(tl.int64) + (1 << 44),")
    assert beyond != good
    evaluation = gpu.judge(beyond)
    assert evaluation.outcome is Outcome.RUNTIME_ERROR, evaluation.detail
    assert "illegal memory access" in evaluation.message
    _assert_next_is_correct(gpu, good)


def test_a_kernel_that_hangs_is_a_timeout_and_the_next_candidate_is_correct_soon(gpu: GpuBench, good: str) -> None:
    _assert_correct(gpu.judge(good))
    begin = time.monotonic()
    hanging = NVRTC.replace("// HERE", "while (true) *(volatile float*)y = 1.0f;")
    evaluation = gpu.judge(hanging, backend="cuda", timeout_s=2.0)
    assert evaluation.outcome is Outcome.TIMEOUT, evaluation.detail
    assert time.monotonic() - begin < 2.0 + SOON_S
    _assert_next_is_correct(gpu, good)


def test_a_candidate_that_sleeps_does_not_keep_others_from_being_timed(gpu: GpuBench, good: str, doing: Any) -> None:
    for evaluation in gpu.judge_all([good] * gpu.lanes):
        _assert_correct(evaluation)
    ended: dict[str, float] = {}

    async def judged(name: str, source: str, after_s: float) -> Evaluation:
        await asyncio.sleep(after_s)
        found = await gpu.evaluator.evaluate(
            _request(source, "triton", gpu.reference, {"timing": name == "timed", "trials": 1})
        )
        ended[name] = time.monotonic()
        return found

    async def both() -> list[Evaluation]:
        sleeping = doing("import time\nfor _ in range(80): time.sleep(0.1)")
        return await asyncio.gather(judged("sleeping", sleeping, 0.0), judged("timed", good, 1.0))

    sleeping, timed = gpu.runner.run(both())
    _assert_correct(timed)
    assert sleeping.outcome is Outcome.CORRECT, sleeping.detail
    assert ended["timed"] < ended["sleeping"] - 1.0


def test_a_gpu_on_which_another_process_works_is_not_idle() -> None:
    works = "import torch; torch.cuda._sleep(1); print(flush=True); torch.cuda._sleep(1 << 33)"
    waits = (
        "import sys, torch; from kernelrl_judge.peer.device_facts import becomes_idle; torch.zeros(1, device='cuda');"
        "print(becomes_idle(1.0), flush=True); input(); print(becomes_idle(0.2), flush=True)"
    )
    with contextlib.ExitStack() as processes:

        def start(program: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", program]
            return processes.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))

        def line_of(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline().strip()

        mine = start(waits)
        alone = line_of(mine)
        line_of(start(works + "; torch.cuda.synchronize()"))
        time.sleep(0.2)
        assert mine.stdin is not None
        mine.stdin.write("\n")
        mine.stdin.flush()
        assert (alone, line_of(mine)) == ("True", "False")


def test_memory_that_a_candidate_takes_without_end_is_free_for_the_next(gpu: GpuBench, good: str, doing: Any) -> None:
    # A judge that starts later would take memory, too.
    for evaluation in gpu.judge_all([good] * gpu.lanes):
        _assert_correct(evaluation)
    before_mib = _used_mib()
    greedy = doing("kept = []\nwhile True: kept.append(torch.ones(1 << 31, dtype=torch.uint8, device=x.device))")
    evaluation = gpu.judge(greedy)
    assert evaluation.outcome is Outcome.OUT_OF_MEMORY, evaluation.detail
    _assert_next_is_correct(gpu, good)
    until = time.monotonic() + SOON_S
    while (left_mib := _used_mib() - before_mib) > MEMORY_LEFT_MIB and time.monotonic() < until:
        time.sleep(0.5)
    assert left_mib <= MEMORY_LEFT_MIB


def test_windows_of_large_tensors_leave_the_gpu_to_the_next_candidate(gpu: GpuBench, good: str, reference: str) -> None:
    # A window holds ten gigabytes and more of these.
    task = reference.replace("torch.randn(300)", "torch.randn(1 << 25)")
    for evaluation in gpu.judge_all([good] * gpu.lanes):
        _assert_correct(evaluation)
    before_mib = _used_mib()
    for number in range(3):
        _assert_correct(gpu.judge(f"{good}\n# {number}\n", reference=task, timing=True))
    assert _used_mib() - before_mib < LARGE_LEFT_MIB


# --- several at once ------------------------------------------------------------------------------------------------


def test_candidates_that_are_judged_at_once_all_have_their_run_time(gpu: GpuBench, good: str, large: str) -> None:
    found = gpu.judge_all([f"{good}\n# {index}\n" for index in range(6)], reference=large, timing=True)
    for evaluation in found:
        _assert_correct(evaluation)
        assert evaluation.runtime is not None
        assert evaluation.runtime.median_us > 0
        assert evaluation.speedup is not None
        assert evaluation.speedup_ci is not None
        assert evaluation.speedup_ci[0] <= evaluation.speedup <= evaluation.speedup_ci[1]


# --- kernels that are compiled at run time --------------------------------------------------------------------------


def _compiled_in_forward(source: str) -> str:
    """The same candidate, with its kernel made by the first call."""
    line = next(line for line in source.splitlines() if line.startswith("kernel = "))
    return source.replace(line, "").replace("        y = ", f"        {line}\n        y = ", 1)


@pytest.mark.parametrize("source", [NVRTC, _compiled_in_forward(NVRTC)], ids=["at import", "in forward"])
def test_a_kernel_that_torch_compiles_at_run_time_is_correct(gpu: GpuBench, source: str) -> None:
    _assert_correct(gpu.judge(source, backend="cuda"))


@pytest.mark.parametrize("source", [NVRTC, _compiled_in_forward(NVRTC)], ids=["at import", "in forward"])
def test_what_torch_cannot_compile_at_run_time_is_a_compile_error(gpu: GpuBench, source: str) -> None:
    evaluation = gpu.judge(source.replace("// HERE", "undefined_thing(n);"), backend="cuda")
    assert evaluation.outcome is Outcome.COMPILE_ERROR, evaluation.detail
    assert "undefined_thing" in evaluation.message


@needs_cupy
@pytest.mark.parametrize("source", [RAW_KERNEL, RAW_MODULE], ids=["RawKernel", "RawModule"])
def test_a_raw_kernel_of_cupy_is_correct(gpu: GpuBench, source: str) -> None:
    _assert_correct(gpu.judge(source, backend="cuda"))


@needs_cupy
@pytest.mark.parametrize("source", [RAW_KERNEL, RAW_MODULE], ids=["RawKernel", "RawModule"])
def test_a_raw_kernel_that_does_not_compile_is_a_compile_error(gpu: GpuBench, source: str) -> None:
    evaluation = gpu.judge(source.replace("// HERE", "undefined_thing(n);"), backend="cuda")
    assert evaluation.outcome is Outcome.COMPILE_ERROR, evaluation.detail
    assert "undefined_thing" in evaluation.message


@needs_cupy
def test_memory_that_cupy_does_not_get_is_out_of_memory(gpu: GpuBench) -> None:
    greedy = RAW_KERNEL.replace("        y = ", "        cupy.empty(1 << 50, dtype=cupy.uint8)\n        y = ", 1)
    evaluation = gpu.judge(greedy, backend="cuda")
    assert evaluation.outcome is Outcome.OUT_OF_MEMORY, evaluation.detail


@needs_cupy
def test_a_raw_kernel_has_a_run_time(gpu: GpuBench, large: str) -> None:
    evaluation = gpu.judge(RAW_KERNEL, backend="cuda", reference=large, timing=True)
    _assert_correct(evaluation)
    assert evaluation.runtime is not None


# --- settings -------------------------------------------------------------------------------------------------------


def test_the_compiled_baseline_is_measured_once_and_then_read(gpu: GpuBench, good: str, large: str) -> None:
    # A task of its own: what other runs have measured must not be found.
    task = f"{large}\n# {uuid.uuid4()}\n"
    kept = cache_directory() / "baselines"
    known = set(kept.glob("*.json"))
    first = gpu.judge(good, reference=task, timing=True, baseline="compile")
    _assert_correct(first)
    assert first.speedup is not None
    (path,) = set(kept.glob("*.json")) - known
    try:
        measured = json.loads(path.read_text())
        assert measured["compiled_share"] > 0
        path.write_text(json.dumps({**measured, "compiled_share": measured["compiled_share"] * 100}))
        second = gpu.judge(good, reference=task, timing=True, baseline="compile")
        _assert_correct(second)
        assert second.speedup is not None
        assert second.speedup / first.speedup == pytest.approx(100, rel=0.5)
    finally:
        path.unlink()


def test_sizes_are_halved_until_they_fit_and_the_provenance_tells_them(gpu: GpuBench, good: str) -> None:
    # The inputs still take gigabytes.
    kernel = good.replace("128", "1024").replace("tl.program_id(0)", "tl.program_id(0).to(tl.int64)")
    evaluation = gpu.judge(kernel, reference=MANY_ROWS, fit_memory=True, trials=1)
    _assert_correct(evaluation)
    assert set(evaluation.provenance["sizes"]) == {"rows"}
    assert 1 < evaluation.provenance["sizes"]["rows"] < 1 << 27


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_right_kernel_is_correct_in_half_precision(gpu: GpuBench, good: str, precision: str) -> None:
    _assert_correct(gpu.judge(good, precision=precision))


@pytest.mark.parametrize("method", ["cuda_event", "do_bench", "do_bench_impl", "host_time"])
def test_each_timing_method_of_kernelbench_gives_a_run_time(gpu: GpuBench, good: str, large: str, method: str) -> None:
    evaluation = gpu.judge(
        good, reference=large, profile="kernelbench", timing=True, timing_method=method, timing_trials=20
    )
    _assert_correct(evaluation)
    assert evaluation.runtime is not None
    assert evaluation.runtime.median_us > 0
    assert evaluation.speedup is not None
    assert evaluation.profile["timing"]["method"] == method


# --- which GPUs -----------------------------------------------------------------------------------------------------


def test_an_evaluator_that_may_see_no_gpu_says_so_with_a_fix(
    fresh: Any, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MissingPrerequisite) as raised:
        fresh().judge(good)
    assert "CUDA_VISIBLE_DEVICES" in raised.value.fix


@needs_two_gpus
def test_candidates_are_spread_over_the_gpus(gpu: GpuBench, good: str) -> None:
    found = gpu.judge_all([f"{good}\n# {index}\n" for index in range(8)])
    for evaluation in found:
        _assert_correct(evaluation)
    assert len({evaluation.provenance["gpu_id"] for evaluation in found}) >= 2


@needs_two_gpus
def test_a_gpu_that_is_not_visible_is_not_used(fresh: Any, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def used(visible: str) -> set[str]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = fresh().judge_all([f"{good}\n# {index}\n" for index in range(4)])
        for evaluation in found:
            _assert_correct(evaluation)
        return {evaluation.provenance["gpu_id"] for evaluation in found}

    first, second = used("0"), used("1")
    assert (len(first), len(second)) == (1, 1)
    assert first != second
