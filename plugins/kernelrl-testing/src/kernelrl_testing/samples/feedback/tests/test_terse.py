"""Contract and texts of the feedback formatter `terse`."""

from kernelrl_core.api.feedback import Outcome
from kernelrl_plugin_terse.feedback import Terse
from kernelrl_plugin_terse.options import TerseConfig
from kernelrl_testing.contracts import FeedbackContract
from kernelrl_testing.values import make_turn


class TestContract(FeedbackContract):
    component = "terse"


def test_a_failure_has_its_message() -> None:
    turn = make_turn(Outcome.COMPILE_ERROR, message="no such name")
    assert Terse(TerseConfig()).format(turn) == "compile_error: no such name"


def test_a_long_text_is_cut_off() -> None:
    turn = make_turn(Outcome.INCORRECT, message="wrong " * 1000)
    assert len(Terse(TerseConfig()).format(turn)) == 500
