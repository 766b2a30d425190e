from __future__ import annotations

import click
import numpy  # noqa: F401  (a heavy module that the tests' environment has)
import psutil  # noqa: F401  (a module that no component here declares)

from kernelrl_core.api.feedback import Feedback, FeedbackConfig


class Config(FeedbackConfig):
    pass


class Silent(Feedback):
    def __init__(self, options: Config) -> None:
        pass

    def format(self, turn: object) -> str:
        return ""


@click.command("broken")
def command() -> None:
    """Do nothing."""
