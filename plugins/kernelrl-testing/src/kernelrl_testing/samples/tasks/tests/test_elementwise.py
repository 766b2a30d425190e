"""Contract and tasks of the task source `elementwise`."""

from kernelrl_plugin_elementwise.options import ElementwiseConfig
from kernelrl_plugin_elementwise.tasks import Elementwise
from kernelrl_testing.contracts import TaskSourceContract


class TestContract(TaskSourceContract):
    component = "elementwise"


def test_references_call_their_function() -> None:
    (task,) = Elementwise(ElementwiseConfig()).tasks("held_out")
    assert task.id == "elementwise/tanh"
    assert "torch.tanh(x)" in task.reference
