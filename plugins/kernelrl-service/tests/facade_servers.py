"""A server with a recipe of fakes, for the tests of the facades."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelrl_command_server import CommandServer
from kernelrl_service_process import Service, Services

RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
episode:   {turns: 2, stop: correct}
rewards:   {correct: {use: fake, weight: 0.7}}
"""
KERNEL = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"
RIGHT, WRONG = KERNEL.format("right"), KERNEL.format("wrong")


@contextmanager
def recipe_server(commands: CommandServer, directory: Path, *options: str) -> Iterator[Service]:
    """Serves the recipe `fake`: two turns, 0.7 for a reply with `return 'right'`, which ends the episode."""
    (directory / "fake.yaml").write_text(RECIPE)
    with Services(commands, directory, "--evaluator", "fake", "--recipe", "fake.yaml", *options) as services:
        yield services.start()
