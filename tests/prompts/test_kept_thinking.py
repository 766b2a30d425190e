"""`history.thinking: kept` requires a chat template that renders earlier thinking."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.rollout.session import open_session
from kernelrl_core.types import Message, Prompt
from kernelrl_plugin_scripted.policy import ScriptedPolicy


def stripping(self: Any, messages: Sequence[Message]) -> Prompt:
    """Like the templates of QwQ and Qwen3: only the last message keeps its thinking."""
    told = "".join(
        f"{message.role}: {re.sub('<think>.*</think>', '', message.content, flags=re.S)}" for message in messages
    )
    return Prompt(tuple(messages), tuple(told.encode()))


def opened(**changes: Any) -> None:
    """Open a session and close it."""
    recipe = recipe_from_mapping(
        {
            "tasks": {"use": "starter", "practice": 0},
            "backend": {"use": "triton"},
            "policy": {"use": "scripted", "replies": [{"reply": "Hello."}]},
            "rewards": {"correct": {"use": "correctness"}},
            "episode": {"turns": 2},
            **changes,
        },
        registry=registry(),
        name="test",
    ).recipe

    async def scene() -> None:
        async with open_session(recipe, registry(), secret=b"s", run_dir=None, say=print):
            pass

    asyncio.run(scene())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))


def test_chat_template_that_drops_thinking_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(history={"thinking": "kept"})
    monkeypatch.setattr(ScriptedPolicy, "render", stripping)
    with pytest.raises(UsageError, match=r"history\.thinking=kept") as refused:
        opened(history={"thinking": "kept"})
    assert "history.form=prompt" in refused.value.fix


@pytest.mark.parametrize(
    "changes",
    [
        {"history": {"thinking": "stripped"}},
        {"history": {"thinking": "kept", "form": "prompt"}},
        {"history": {"thinking": "kept"}, "episode": {"turns": 1}},
    ],
)
def test_settings_without_chat_history_are_accepted(changes: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(ScriptedPolicy, "render", stripping)
    opened(**changes)
