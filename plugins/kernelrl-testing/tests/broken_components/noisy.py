from __future__ import annotations

from kernelrl_core.api.feedback import Feedback, FeedbackConfig

print("hello")


class Config(FeedbackConfig):
    pass


class Silent(Feedback):
    def __init__(self, options: Config) -> None:
        pass

    def format(self, turn: object) -> str:
        return ""
