"""Errors at the plugin boundary."""

from __future__ import annotations

import json

import pytest

from kernelrl_core.errors import (
    InfrastructureError,
    KernelRLError,
    PluginError,
    SamplingError,
    StorageError,
    UsageError,
)
from kernelrl_core.plugins.boundary import plugin_boundary, plugin_test, returned, returned_plain


def test_an_unexpected_exception_names_component_and_action() -> None:
    message = r"policy 'x' failed in sample: ValueError: no"
    with pytest.raises(KernelRLError, match=message) as raised, plugin_boundary("policy 'x'", "sample"):
        raise ValueError("no")
    assert not isinstance(raised.value, InfrastructureError)


def test_an_infrastructure_error_is_classified_by_the_boundary() -> None:
    with pytest.raises(SamplingError) as raised, plugin_boundary("policy 'x'", "sample", broken=SamplingError):
        raise InfrastructureError("the server is gone", fix="start it")
    assert (raised.value.message, raised.value.fix) == ("the server is gone", "start it")


def test_the_default_class_of_an_infrastructure_error_is_plugin_error() -> None:
    with pytest.raises(PluginError), plugin_boundary("retriever 'x'", "search"):
        raise InfrastructureError("the index is gone")


def test_an_inner_boundary_keeps_its_class() -> None:
    with pytest.raises(StorageError), plugin_boundary("policy 'x'", "save", broken=SamplingError):
        raise StorageError("the disk is full")


def test_a_usage_error_passes_unchanged() -> None:
    with pytest.raises(UsageError, match="wrong key"), plugin_boundary("policy 'x'", "sample"):
        raise UsageError("wrong key")


def test_a_return_value_of_another_type_names_component_action_and_type() -> None:
    assert returned("text", str, "feedback 'x'", "format") == "text"
    with pytest.raises(KernelRLError, match="feedback 'x' returned None from format, not str") as caught:
        returned(None, str, "feedback 'x'", "format")
    assert caught.value.fix.startswith("in the plugin, return str; kernelrl plugins check")


def test_an_exit_is_an_error_of_the_component() -> None:
    with (
        pytest.raises(KernelRLError, match="policy 'x' failed in sample: SystemExit: 3"),
        plugin_boundary("policy 'x'", "sample"),
    ):
        raise SystemExit(3)


def test_the_message_has_the_file_and_line_of_the_plugin() -> None:
    def read(text: str) -> object:
        return json.loads(text)

    with pytest.raises(KernelRLError) as caught, plugin_boundary("policy 'x'", "sample"):
        read("{")
    line = read.__code__.co_firstlineno + 1
    assert caught.value.message.endswith(f"({__file__}:{line})")


def test_output_of_a_component_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with plugin_boundary("policy 'x'", "sample"):
        print("hello")
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("component", "plugin"),
    [
        ("policy 'torch'", "torch"),
        ("rewards.fast: reward 'speedup' of plugin rewards", "rewards"),
        ("feedback 'structured'", "feedback"),
        ("task source 'starter'", "starter"),
        ("backend 'cpp:cpp'", "cpp"),
    ],
)
def test_the_command_that_tests_a_component_names_its_plugin(component: str, plugin: str) -> None:
    assert plugin_test(component) == f"kernelrl plugins check {plugin} tests it"


def test_an_identity_of_plain_data_is_returned() -> None:
    identity = {"index": "abc", "files": ["a", "b"], "sizes": {"a": 1}}
    assert returned_plain(identity, "retriever 'x'", "identity") == identity


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("abc", "str from identity, not Mapping"), ({"path": object()}, "not plain data (its value 'path' is a object)")],
)
def test_an_identity_that_is_not_plain_data_names_the_value(value: object, wanted: str) -> None:
    with pytest.raises(KernelRLError) as caught:
        returned_plain(value, "retriever 'x'", "identity")
    assert wanted in caught.value.message
