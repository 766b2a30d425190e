"""Output of the command `slow-turns`."""

from pathlib import Path

from click.testing import CliRunner

from kernelrl_core.api.runs import RunDir
from kernelrl_plugin_slow_turns.command import command
from kernelrl_testing.contracts import CommandContract
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy
from kernelrl_testing.training import make_recipe, train_here


class TestContract(CommandContract):
    component = "slow-turns"


def test_the_slowest_turns_come_first(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    recipe, advantage = make_recipe(), lambda group: [[0.0] * len(episode) for episode in group]
    train_here(run, recipe, FakeEnvironment(), FakePolicy(), advantage)
    done = CliRunner().invoke(command, [str(run.path), "--count", "3"])
    assert done.exit_code == 0, done.output
    seconds = [float(line.split()[0]) for line in done.output.splitlines()]
    assert len(seconds) == 3
    assert seconds == sorted(seconds, reverse=True)
