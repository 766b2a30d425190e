"""What the stand-in and the client assume of Modal's installed client. Contacts no server."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import modal
import modal.experimental
import pytest
from modal import _functions, _serialization, exception
from modal._utils import function_utils
from modal_proto import api_pb2
from modal_standin import OUTAGES, Call, Function

from kernelrl_plugin_modal.client import refuse_pickles


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_stand_in_has_the_signatures_of_the_client() -> None:
    assert parameters(_functions._FunctionCall.get) == parameters(Call._get) == ["timeout", "index"]
    assert parameters(_functions._FunctionCall.cancel) == parameters(Call._cancel) == ["terminate_containers"]
    assert parameters(_functions._Function.spawn) == ["args", "kwargs"]
    assert parameters(modal.Function.from_name)[:2] == ["app_name", "name"]
    for method in (modal.Function.spawn, modal.Function.hydrate, modal.FunctionCall.get, modal.FunctionCall.cancel):
        assert hasattr(method, "aio")
    assert hasattr(Function(1, lambda _: {}).spawn, "aio")


def test_getting_a_result_must_not_be_cancelled() -> None:
    assert "not cancellation-safe" in str(_functions._FunctionCall.get.__doc__)


def test_cancelling_a_call_keeps_its_container() -> None:
    default = inspect.signature(_functions._FunctionCall.cancel).parameters["terminate_containers"].default
    assert default is False


def test_all_failures_of_modal_derive_from_its_base_class() -> None:
    assert all(isinstance(make(), exception.Error) for make in OUTAGES)
    assert not issubclass(exception.TimeoutError, TimeoutError)
    for name in ("AuthError", "PermissionDeniedError", "NotFoundError", "VersionError", "ResourceExhaustedError"):
        assert issubclass(getattr(exception, name), exception.Error)


def test_a_function_that_restricts_its_output_offers_cbor_only() -> None:
    formats = _functions._get_supported_input_output_formats(False, False, True)[1]
    assert formats == [api_pb2.DATA_FORMAT_CBOR]


def test_functions_of_other_modules_can_be_added_to_an_app() -> None:
    assert callable(modal.experimental.stop_fetching_inputs)
    known = parameters(modal.App.function)
    used = {
        "name",
        "image",
        "gpu",
        "min_containers",
        "max_containers",
        "scaledown_window",
        "startup_timeout",
        "retries",
    }
    assert used | {"block_network", "restrict_modal_access", "_experimental_restrict_output"} <= set(known)


class Trap:
    """Its pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def refusing() -> None:
    refuse_pickles()


def read(status: Any, data_format: int, data: bytes) -> Any:
    result = api_pb2.GenericResult(status=status, data=data, exception="it failed")
    return asyncio.run(function_utils._process_result(result, data_format, None, None))


SUCCESS, FAILURE, TERMINATED = (
    api_pb2.GenericResult.GENERIC_STATUS_SUCCESS,
    api_pb2.GenericResult.GENERIC_STATUS_FAILURE,
    api_pb2.GenericResult.GENERIC_STATUS_TERMINATED,
)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("status", [SUCCESS, FAILURE])
@pytest.mark.parametrize("data_format", [api_pb2.DATA_FORMAT_PICKLE, api_pb2.DATA_FORMAT_UNSPECIFIED])
def test_b9_no_pickle_of_a_container_is_read(status: Any, data_format: int, tmp_path: Path) -> None:
    with pytest.raises(exception.Error):
        read(status, data_format, pickle.dumps(Trap(tmp_path / "trap")))
    assert os.listdir(tmp_path) == []


def test_a_pickle_is_read_without_the_refusal(tmp_path: Path) -> None:
    read(SUCCESS, api_pb2.DATA_FORMAT_PICKLE, pickle.dumps(Trap(tmp_path / "trap")))
    assert os.listdir(tmp_path) == ["trap"]


@pytest.mark.usefixtures("refusing")
def test_text_in_cbor_is_read() -> None:
    data = _serialization.serialize_data_format('{"a": 1}', api_pb2.DATA_FORMAT_CBOR)
    assert read(SUCCESS, api_pb2.DATA_FORMAT_CBOR, data) == '{"a": 1}'


@pytest.mark.usefixtures("refusing")
def test_a_cancelled_call_ends_with_a_remote_error() -> None:
    with pytest.raises(exception.RemoteError):
        read(TERMINATED, api_pb2.DATA_FORMAT_UNSPECIFIED, b"")


@pytest.mark.parametrize(("command", "option"), [("logs", "--follow"), ("stop", "--yes")])
def test_modals_command_line_has_the_commands_in_use(command: str, option: str) -> None:
    from modal.cli import app

    assert option in [name for parameter in getattr(app, command).params for name in parameter.opts]
