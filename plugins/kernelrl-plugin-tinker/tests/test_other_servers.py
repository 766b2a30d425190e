"""Servers that are no Tinker servers, that lack a call, that need another SDK, or that respond with errors."""

from __future__ import annotations

import http.server
import inspect
import threading
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker.lib.public_interfaces import sampling_client

from kernelrl_core.api.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_plugin_tinker import config
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_plugin_tinker.saved import with_kind


async def nothing(policy: TinkerPolicy) -> None:
    pass


def is_one_line(error: KernelRLError) -> bool:
    return "\n" not in error.message and bool(error.fix) and "<html>" not in error.message


# --- no Tinker server -----------------------------------------------------------------------------------------------


@pytest.fixture
def web_site(tmp_path):
    """URL of a web server with one page at `/`."""
    (tmp_path / "index.html").write_text("<html>A page</html>")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_web_site_is_no_tinker_server(run, policy, web_site) -> None:
    with pytest.raises(MissingPrerequisite, match=r"is no Tinker server: .* 404 \(text/html\)") as failure:
        run(policy(base_url=web_site), nothing)
    assert "correct policy.base_url" in failure.value.fix
    assert is_one_line(failure.value)


def test_a_page_in_place_of_the_list_of_models_is_no_tinker_server(run, policy, proxy) -> None:
    proxy.fault("page", "get_server_capabilities", 9)
    with pytest.raises(MissingPrerequisite, match=r"is no Tinker server: .* 200 \(text/html\)") as failure:
        run(policy(), nothing)
    assert is_one_line(failure.value)


@pytest.mark.parametrize(("fault", "status"), [("storm", 429), ("gateway", 502)])
def test_a_server_with_only_errors_is_reported_at_the_start(run, policy, proxy, fault, status) -> None:
    proxy.fault(fault, "get_server_capabilities", 999)
    with pytest.raises(MissingPrerequisite, match=rf"it responds {status} .*, for 3 s") as failure:
        run(policy(give_up_after_s=3.0), nothing)
    assert is_one_line(failure.value)


def test_a_server_that_is_busy_at_the_start_is_used_later(run, policy, proxy, one_reply) -> None:
    proxy.fault("storm", "get_server_capabilities", 2)
    assert run(policy(), one_reply).tokens


# --- missing calls --------------------------------------------------------------------------------------------------


def test_a_server_without_sampling_is_a_usage_error(run, policy, proxy, one_reply) -> None:
    proxy.fault("missing", "asample", 999)
    with pytest.raises(UsageError, match="the server refuses a reply: missing") as failure:
        run(policy(), one_reply)
    assert "\n" not in failure.value.message


def test_a_server_that_loads_weights_only_into_a_model_is_resumed(
    run, learn, one_reply, policy, proxy, tmp_path
) -> None:
    async def save(started: TinkerPolicy) -> Any:
        await learn()(started)
        return await started.save(tmp_path), await one_reply(started)

    saved, expected = run(policy(), save)

    async def resume(started: TinkerPolicy) -> Any:
        await started.load(saved, tmp_path)
        same = await one_reply(started)
        return same, await learn()(started)

    undisturbed = run(policy(), resume)
    proxy.fault("no model", "load_weights", 999)
    assert run(policy(), resume) == undisturbed
    assert undisturbed[0] == expected


def test_a_run_starts_from_weights_that_load_only_into_a_model(run, learn, one_reply, policy, proxy, tmp_path) -> None:
    async def save(started: TinkerPolicy) -> Any:
        await learn()(started)
        return (await started.save(tmp_path))["state"], await one_reply(started)

    path, expected = run(policy(), save)
    proxy.fault("no model", "load_weights", 999)
    assert run(policy(start_from=path), one_reply) == expected


def test_paths_of_sampler_weights_have_one_form() -> None:
    assert with_kind("tinker://model_1/step-000001") == "tinker://model_1/sampler_weights/step-000001"
    assert with_kind("tinker://a:train:0/sampler_weights/b") == "tinker://a:train:0/sampler_weights/b"


# --- other SDKs -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    "sample_sequence_ids" not in inspect.getsource(sampling_client), reason="this SDK needs no ids of samples"
)
def test_a_server_for_an_older_sdk_is_a_usage_error(run, policy, proxy, one_reply) -> None:
    proxy.fault("no ids", "asample", 999)
    with pytest.raises(UsageError, match=f"tinker {tinker.__version__} cannot read the server's response") as failure:
        run(policy(), one_reply)
    assert is_one_line(failure.value)
    assert "pip install 'tinker<" in failure.value.fix


@pytest.mark.parametrize(
    ("installed", "absent"),
    [("0.24.1", ("tinker 0.25 or newer; 0.24.1 is installed",)), ("0.25.0", ()), ("0.38.0", ()), ("1.0", ())],
)
def test_an_sdk_that_is_too_old_is_a_missing_prerequisite(monkeypatch, installed: str, absent: tuple[str, ...]) -> None:
    monkeypatch.setattr(config, "version", lambda name: installed)
    requires = TinkerConfig(model="m", base_url="http://127.0.0.1:8124").requires()
    assert requires.absent == absent
    assert requires.fix == ("pip install 'tinker>=0.25'" if absent else "")


def test_an_sdk_that_is_not_installed_is_a_missing_module(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(config, "version", missing)
    assert "tinker" in TinkerConfig(server="local").requires().modules


def test_the_declared_sdk_is_the_oldest_one_that_the_policy_accepts() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = ".".join(map(str, config._OLDEST_SDK))
    assert [line for line in project["dependencies"] if line.startswith("tinker>")] == [f"tinker>={oldest}"]
