from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.kinds import TrainingSample
from kernelrl_plugin_torch.learner import micro_batches, parts


def _samples(n: int) -> list[TrainingSample]:
    return [TrainingSample(str(i), (1,) * (i % 5 + 1), (2,) * (i % 3), (0.0,) * (i % 3), 0.0) for i in range(n)]


@given(st.integers(0, 40), st.integers(1, 50))
def test_parts_are_nearly_equal_and_in_order(n: int, substeps: int) -> None:
    samples = _samples(n)
    made = parts(samples, substeps)
    assert len(made) == min(n, substeps)
    assert [sample for part in made for sample in part] == samples
    sizes = [len(part) for part in made]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(st.integers(0, 40), st.integers(1, 30))
def test_micro_batches_keep_order_and_budget(n: int, budget: int) -> None:
    samples = _samples(n)
    made = list(micro_batches(samples, budget))
    assert [sample for batch in made for sample in batch] == samples
    for batch in made:
        assert len(batch) == 1 or sum(len(s.prompt_tokens) + len(s.tokens) for s in batch) <= budget
