from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelrl_plugin_torch.language_model import PromptAndReply
from kernelrl_plugin_torch.learner import micro_batches


@given(st.integers(0, 40), st.integers(1, 30))
def test_micro_batches_keep_order_and_budget(n: int, budget: int) -> None:
    replies = [PromptAndReply((1,) * (i % 5 + 1), (2,) * (i % 3)) for i in range(n)]
    made = list(micro_batches(replies, budget))
    assert [reply for batch in made for reply in batch] == replies
    for batch in made:
        assert len(batch) == 1 or sum(len(s.prompt) + len(s.reply) for s in batch) <= budget
