"""Output of plugin code is on standard error; the rest of the process keeps its standard output."""

from __future__ import annotations

import asyncio

import pytest

from kernelrl_core.plugins.output import output_to_stderr


def test_output_within_the_context_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with output_to_stderr():
        print("a plugin")
    print("a result")
    assert capsys.readouterr() == ("a result\n", "a plugin\n")


def test_a_task_beside_plugin_code_prints_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    inside, printed = asyncio.Event(), asyncio.Event()

    async def plugin() -> None:
        with output_to_stderr():
            inside.set()
            await printed.wait()
            print("a plugin")

    async def command() -> None:
        await inside.wait()
        print("a result")
        printed.set()

    async def both() -> None:
        await asyncio.gather(plugin(), command())

    asyncio.run(both())
    assert capsys.readouterr() == ("a result\n", "a plugin\n")


def test_an_exception_ends_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), output_to_stderr():
        raise ValueError("no")
    print("a result")
    assert capsys.readouterr().out == "a result\n"
