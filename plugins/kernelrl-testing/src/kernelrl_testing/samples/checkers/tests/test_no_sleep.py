"""Contract and findings of the checker `no_sleep`."""

from kernelrl_plugin_no_sleep.checker import NoSleep
from kernelrl_plugin_no_sleep.options import NoSleepConfig
from kernelrl_testing.contracts import CheckerContract
from kernelrl_testing.values import make_candidate, make_task

BAD = "import time\ntime.sleep(1)\n"


class TestContract(CheckerContract):
    component = "no_sleep"
    sources = (BAD,)


def test_a_candidate_that_breaks_the_rule_has_a_finding() -> None:
    checker = NoSleep(NoSleepConfig())
    (finding,) = checker.check(make_candidate(BAD), make_task(), None)
    assert (finding.rule, finding.line) == ("no_sleep", 2)


def test_another_candidate_has_none() -> None:
    checker = NoSleep(NoSleepConfig())
    assert not checker.check(make_candidate("x = 1\n"), make_task(), None)
