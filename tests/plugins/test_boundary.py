"""Errors at the plugin boundary."""

from __future__ import annotations

import pytest

from kernelrl_core.errors import (
    InfrastructureError,
    KernelRLError,
    PluginError,
    SamplingError,
    StorageError,
    UsageError,
)
from kernelrl_core.plugins.boundary import plugin_boundary, returned


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
