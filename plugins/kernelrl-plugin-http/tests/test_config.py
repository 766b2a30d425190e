"""Addresses and options, without a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kernelrl_plugin_http.address import default_socket, is_service_running, service_urls
from kernelrl_plugin_http.config import HttpConfig


@pytest.fixture
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory for temporary files, and no named service."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("KERNELRL_SERVICE")
    return tmp_path


def own_socket() -> Path:
    path = default_socket()
    assert path is not None
    return path


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8790", "must be a URL such as"),
        ("ftp://host", "must be a URL such as"),
        ("http://host:port", "must be a URL such as"),
        ("http://user:secret@host", "no user, password or query"),
        ("unix:relative.sock", "needs an absolute path"),
    ],
)
def test_an_address_that_cannot_be_used_is_a_problem_without_its_text(url: str, problem: str) -> None:
    (found,) = HttpConfig(urls=("http://127.0.0.1:8790", url)).problems()
    assert found.startswith("urls[1]: ")
    assert problem in found
    assert "secret" not in found


def test_a_server_that_is_named_twice_is_a_problem() -> None:
    assert list(HttpConfig(urls=("http://a/", "http://a")).problems()) == ["urls names a server twice"]


def test_the_variable_names_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_SERVICE", "http://a:1, unix:/b")
    assert service_urls() == ("http://a:1", "unix:/b")
    assert is_service_running()
    assert HttpConfig(urls=("http://c",)).servers == ("http://c",)


def test_an_empty_variable_turns_the_service_off(own_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(own_socket()))
        server.listen()
        assert is_service_running()
        monkeypatch.setenv("KERNELRL_SERVICE", "")
        assert not is_service_running()


def test_a_socket_that_nothing_listens_to_is_no_service(own_directory: Path) -> None:
    assert service_urls() == ()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(own_socket()))
        assert not is_service_running()


def test_a_directory_that_others_may_write_to_has_no_service(own_directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(own_socket()))
        server.listen()
        own_socket().parent.chmod(0o777)
        assert default_socket() is None
        assert not is_service_running()


def test_without_a_server_the_prerequisite_names_the_command(own_directory: Path) -> None:
    needed = HttpConfig().requires()
    assert needed.absent == ("a running server of kernelrl serve",)
    assert "kernelrl serve --unix" in needed.fix


def test_a_wrong_address_in_the_variable_is_a_prerequisite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_SERVICE", "localhost")
    assert HttpConfig().requires().absent == ("a usable address in KERNELRL_SERVICE",)
