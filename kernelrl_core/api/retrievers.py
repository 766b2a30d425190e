"""Write a retriever."""

from __future__ import annotations

from kernelrl_core.interfaces.retrievers import Retriever, RetrieverConfig
from kernelrl_core.types.tasks import Example, Task

__all__ = ["Example", "Retriever", "RetrieverConfig", "Task"]
