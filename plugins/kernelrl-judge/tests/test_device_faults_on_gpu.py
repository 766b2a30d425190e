"""On a GPU: candidates that fault, hang or take all memory, and the evaluation of the next one."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time

import pytest
from shared_evaluations import KERNEL, LANES_PER_GPU, NVRTC, REFERENCE, Evaluations, gpu_request, kernel_with

from kernelrl_core.api.config import gpu_vendors, visible_gpus
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome
from kernelrl_testing.waiting import takes, takes_async, wait_until

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]

SOON_S = 15.0
"""For a candidate after one that did harm: a context, Triton's compiler and five trials take a tenth of it."""
MEMORY_LEFT_MIB = 256
LARGE_LEFT_MIB = 12 << 10
"""Memory that one judge may keep for itself and for its next runner: three times a 48th part of an H200's memory."""


def assert_correct(evaluation: Evaluation) -> None:
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail


def assert_next_is_correct(evaluations: Evaluations) -> None:
    begin = time.monotonic()
    assert_correct(evaluations.evaluate_on_gpu(KERNEL))
    assert time.monotonic() - begin < SOON_S


def start_every_judge(evaluations: Evaluations) -> None:
    """Evaluate one kernel in each lane, since a judge that starts later would change the memory in use."""
    requests = [gpu_request(KERNEL)] * (LANES_PER_GPU * len(visible_gpus()))
    for evaluation in evaluations.evaluate_concurrently(requests):
        assert_correct(evaluation)


def used_mib() -> int:
    """Memory in use on all GPUs of the machine, in MiB."""
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return sum(int(line) for line in done.stdout.split())


def test_an_illegal_access_is_a_runtime_error_and_the_next_candidate_is_correct(evaluations: Evaluations) -> None:
    beyond = KERNEL.replace("tl.store(y_ptr + offs,", "tl.store(y_ptr + offs.to(tl.int64) + (1 << 44),")
    assert beyond != KERNEL
    evaluation = evaluations.evaluate_on_gpu(beyond)
    assert evaluation.outcome is Outcome.RUNTIME_ERROR, evaluation.detail
    assert "illegal memory access" in evaluation.message
    assert_next_is_correct(evaluations)


def test_a_kernel_that_hangs_is_a_timeout_and_the_next_candidate_is_correct_soon(evaluations: Evaluations) -> None:
    assert_correct(evaluations.evaluate_on_gpu(KERNEL))
    begin = time.monotonic()
    hanging = NVRTC.replace("// HERE", "while (true) *(volatile float*)y = 1.0f;")
    evaluation = evaluations.evaluate_on_gpu(hanging, backend="cuda", timeout_s=2.0)
    assert evaluation.outcome is Outcome.TIMEOUT, evaluation.detail
    assert time.monotonic() - begin < 2.0 + SOON_S
    assert_next_is_correct(evaluations)


def test_a_candidate_that_sleeps_does_not_keep_others_from_being_timed(evaluations: Evaluations) -> None:
    start_every_judge(evaluations)
    ended: dict[str, float] = {}

    async def evaluate(name: str, request: EvaluationRequest, after_s: float) -> Evaluation:
        await takes_async(after_s)
        evaluation = await evaluations.pool.evaluate(request)
        ended[name] = time.monotonic()
        return evaluation

    async def evaluate_both() -> tuple[Evaluation, Evaluation]:
        sleeping = gpu_request(kernel_with("import time\nfor _ in range(80): time.sleep(0.1)"), trials=1)
        timed = gpu_request(KERNEL, timing=True, trials=1)
        return await asyncio.gather(evaluate("sleeping", sleeping, 0.0), evaluate("timed", timed, 1.0))

    sleeping, timed = evaluations.run(evaluate_both())
    assert_correct(timed)
    assert sleeping.outcome is Outcome.CORRECT, sleeping.detail
    assert ended["timed"] < ended["sleeping"] - 1.0


def test_a_gpu_on_which_another_process_works_is_not_idle() -> None:
    works = "import torch; torch.cuda._sleep(1); print(flush=True); torch.cuda._sleep(1 << 33)"
    waits = (
        "import sys, torch; from kernelrl_judge.device.facts import becomes_idle; torch.zeros(1, device='cuda');"
        "print(becomes_idle(1.0), flush=True); input(); print(becomes_idle(0.2), flush=True)"
    )
    with contextlib.ExitStack() as processes:

        def start(program: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", program]
            return processes.enter_context(subprocess.Popen(command, stdin=-1, stdout=-1, text=True))

        def line_of(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline().strip()

        waiting = start(waits)
        alone = line_of(waiting)
        line_of(start(works + "; torch.cuda.synchronize()"))
        takes(0.2)
        assert waiting.stdin is not None
        waiting.stdin.write("\n")
        waiting.stdin.flush()
        assert (alone, line_of(waiting)) == ("True", "False")


def test_memory_that_a_candidate_takes_without_end_is_free_for_the_next(evaluations: Evaluations) -> None:
    start_every_judge(evaluations)
    before_mib = used_mib()
    greedy = kernel_with("kept = []\nwhile True: kept.append(torch.ones(1 << 31, dtype=torch.uint8, device=x.device))")
    evaluation = evaluations.evaluate_on_gpu(greedy)
    assert evaluation.outcome is Outcome.OUT_OF_MEMORY, evaluation.detail
    assert_next_is_correct(evaluations)
    wait_until(lambda: used_mib() - before_mib <= MEMORY_LEFT_MIB, deadline_s=SOON_S)


def test_windows_of_large_tensors_leave_the_gpu_to_the_next_candidate(evaluations: Evaluations) -> None:
    # A window holds ten gigabytes and more of these.
    task = REFERENCE.replace("torch.randn(300)", "torch.randn(1 << 25)")
    start_every_judge(evaluations)
    before_mib = used_mib()
    for number in range(3):
        assert_correct(evaluations.evaluate_on_gpu(f"{KERNEL}\n# {number}\n", task, timing=True))
    assert used_mib() - before_mib < LARGE_LEFT_MIB
