"""On a GPU: the GPUs that a pool of judges uses."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from shared_evaluations import KERNEL, Evaluations, gpu_request

from kernelrl_core.api.config import gpu_vendors, visible_gpus
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]
needs_two_gpus = pytest.mark.skipif(
    "nvidia" not in gpu_vendors() or len(visible_gpus()) < 2, reason="needs two NVIDIA GPUs"
)


def used_gpus(evaluations: Iterable[Evaluation]) -> set[str]:
    """Ids of the GPUs of correct evaluations."""
    gpus = set()
    for evaluation in evaluations:
        assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
        gpus.add(evaluation.provenance["gpu_id"])
    return gpus


def test_a_pool_that_sees_no_gpu_fails_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with Evaluations() as evaluations, pytest.raises(MissingPrerequisite) as raised:
        evaluations.evaluate_on_gpu(KERNEL)
    assert "CUDA_VISIBLE_DEVICES" in raised.value.fix


@needs_two_gpus
def test_candidates_are_spread_over_the_gpus(evaluations: Evaluations) -> None:
    requests = [gpu_request(f"{KERNEL}\n# {index}\n") for index in range(8)]
    assert len(used_gpus(evaluations.evaluate_concurrently(requests))) >= 2


@needs_two_gpus
def test_a_gpu_that_is_not_visible_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def used_by_a_new_pool(visible: str) -> set[str]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        requests = [gpu_request(f"{KERNEL}\n# {index}\n") for index in range(4)]
        with Evaluations() as evaluations:
            return used_gpus(evaluations.evaluate_concurrently(requests))

    first, second = used_by_a_new_pool("0"), used_by_a_new_pool("1")
    assert (len(first), len(second)) == (1, 1)
    assert first != second
