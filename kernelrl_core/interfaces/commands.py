'''Commands: further commands of `kernelrl`.

A command is a `click.Command`. Its module is imported when the command runs or prints its help; `kernelrl --help` shows
the summary of the component. Import heavy modules inside the function. Results are written to stdout, messages to
stderr; raise the errors of `kernelrl_core.api.errors`, which have exit codes.

    # src/kernelrl_plugin_slow_turns/__init__.py
    """Command `slow-turns` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_commands() -> list[Component]:
        return [
            Component(
                "slow-turns",
                target="kernelrl_plugin_slow_turns.command:command",
                summary="List the slowest evaluations of a run",
            )
        ]

    # src/kernelrl_plugin_slow_turns/command.py
    """The command `slow-turns`."""

    import click


    @click.command("slow-turns")
    @click.argument("run")
    @click.option("--count", default=5, show_default=True, help="Number of turns.")
    def command(run: str, count: int) -> None:
        """List the turns of RUN whose evaluation took longest.

        \\b
        Example:
          kernelrl slow-turns runs/quickstart --count 3
        """
        from kernelrl_core.api.runs import find_run

        rows = sorted(find_run(run).rows("samples"), key=lambda row: row["seconds"].get("evaluate", 0.0), reverse=True)
        for row in rows[:count]:
            click.echo(f"{row['seconds'].get('evaluate', 0.0):8.2f} s  {row['sample']}  {row['outcome']}")

    # tests/test_slow_turns.py
    """Output of the command `slow-turns`."""

    from pathlib import Path

    from click.testing import CliRunner

    from kernelrl_core.api.runs import RunDir
    from kernelrl_core.testing.contracts import CommandContract
    from kernelrl_core.testing.fakes import FakeEnvironment, FakePolicy
    from kernelrl_core.testing.training import make_recipe, train_here
    from kernelrl_plugin_slow_turns.command import command


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
'''

from __future__ import annotations

from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["ComponentConfig"]
