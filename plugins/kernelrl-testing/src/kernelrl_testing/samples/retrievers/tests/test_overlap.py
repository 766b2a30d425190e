"""Contract and order of the retriever `overlap`."""

from kernelrl_plugin_overlap.corpus import CORPUS
from kernelrl_plugin_overlap.options import OverlapConfig
from kernelrl_plugin_overlap.retriever import Overlap
from kernelrl_testing.contracts import RetrieverContract
from kernelrl_testing.values import make_task


class TestContract(RetrieverContract):
    component = "overlap"


def test_the_example_for_the_same_task_comes_first() -> None:
    _, square = CORPUS["triton"]
    task = make_task("mine", square.reference)
    best, other = Overlap(OverlapConfig()).search(task, "triton")
    assert (best.id, best.similarity) == (square.id, 1.0)
    assert other.similarity is not None
    assert other.similarity < 1.0


def test_there_are_no_examples_for_another_backend() -> None:
    assert list(Overlap(OverlapConfig()).search(make_task(), "cpp")) == []
