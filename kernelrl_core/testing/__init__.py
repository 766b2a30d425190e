"""The public test kit: values, fakes and contract tests, for tests of the framework and of plugins.

| module | what it has |
|---|---|
| `testing.values` | builders of tasks, turns, evaluations, … with defaults for every field |
| `testing.fakes` | a policy, an evaluator, task source, environment that need no torch and run no candidate |
| `testing.contracts` | one class of tests per kind of component; a plugin's tests derive from it |
| `testing.training` | a recipe of fakes, and the training loop in the test's process |
| `testing.fixtures` | a pytest plugin: an isolated cache directory, one evaluator per test session, `assert_kernel` |

A plugin tests a reward component like this:

    # tests/test_brevity.py
    from kernelrl_core.api.rewards import Outcome
    from kernelrl_core.testing.contracts import RewardContract
    from kernelrl_core.testing.values import make_turn

    from my_plugin.brevity import Brevity, BrevityConfig

    class TestBrevity(RewardContract):
        component = "brevity"

    def test_half_of_the_characters_gives_half_the_score():
        turn = make_turn(Outcome.CORRECT, source="x" * 2000)
        assert Brevity(BrevityConfig()).score(turn) == 0.5

Only `testing.fixtures` imports pytest (`pip install 'kernelrl[testing]'`). The rest of the core never imports this
package.
"""
