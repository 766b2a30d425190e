"""Contract and scores of the reward component `brevity`."""

from kernelrl_core.api.rewards import Outcome
from kernelrl_plugin_brevity.options import BrevityConfig
from kernelrl_plugin_brevity.reward import Brevity
from kernelrl_testing.contracts import RewardContract
from kernelrl_testing.values import make_turn


class TestContract(RewardContract):
    component = "brevity"
    sources = ("# " + "long " * 5000,)


def test_half_of_the_characters_gives_half_the_score() -> None:
    turn = make_turn(Outcome.CORRECT, source="x" * 2000)
    assert Brevity(BrevityConfig()).score(turn) == 0.5


def test_a_reply_without_a_candidate_gets_no_score() -> None:
    assert Brevity(BrevityConfig()).score(make_turn(Outcome.FORMAT_ERROR)) == 0.0
