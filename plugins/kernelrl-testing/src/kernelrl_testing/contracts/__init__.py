"""Contract tests: the requirements of the core on a component, one class per kind.

Derive a class whose name begins with `Test` from the contract of the kind, and name the component. Pytest collects the
inherited tests:

    from kernelrl_testing.contracts import CheckerContract, RewardContract

    class TestBrevity(RewardContract):
        component = "brevity"
        sources = ("# " + "long " * 5000,)

    class TestNoSleep(CheckerContract):
        component = "no_sleep"
        sources = ("import time\\ntime.sleep(1)\\n",)

The plugin must be installed, for instance with `pip install -e .`. `kernelrl plugins check NAME` runs the same tests
for every component of a plugin. A test that needs a prerequisite which this machine lacks is skipped. Checks of one
kind only see what the arguments exercise: give the turns, sources or kernels that matter to the component.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelrl_testing.contracts.advantages import AdvantageContract
from kernelrl_testing.contracts.backends import BackendContract
from kernelrl_testing.contracts.base import ComponentContract, failures
from kernelrl_testing.contracts.checkers import CheckerContract
from kernelrl_testing.contracts.commands import CommandContract
from kernelrl_testing.contracts.evaluators import EvaluatorContract
from kernelrl_testing.contracts.feedback import FeedbackContract
from kernelrl_testing.contracts.loggers import LoggerContract
from kernelrl_testing.contracts.policies import PolicyContract
from kernelrl_testing.contracts.retrievers import RetrieverContract
from kernelrl_testing.contracts.rewards import RewardContract
from kernelrl_testing.contracts.tasks import TaskSourceContract

__all__ = [
    "CONTRACTS",
    "AdvantageContract",
    "BackendContract",
    "CheckerContract",
    "CommandContract",
    "ComponentContract",
    "EvaluatorContract",
    "FeedbackContract",
    "LoggerContract",
    "PolicyContract",
    "RetrieverContract",
    "RewardContract",
    "TaskSourceContract",
    "failures",
]

CONTRACTS: Mapping[str, type[ComponentContract]] = {
    contract.kind: contract
    for contract in (
        AdvantageContract,
        BackendContract,
        CheckerContract,
        CommandContract,
        EvaluatorContract,
        FeedbackContract,
        LoggerContract,
        PolicyContract,
        RetrieverContract,
        RewardContract,
        TaskSourceContract,
    )
}
"""Kind -> its contract."""
