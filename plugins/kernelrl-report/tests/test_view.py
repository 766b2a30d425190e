"""The server: hosts, data on demand, and changes of a run that the page shows without a reload."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from report_runs import a_turn, append, metrics_row

from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome
from kernelrl_report.server import Server, open_server
from kernelrl_testing.core import main, sample_row
from kernelrl_testing.waiting import DEADLINE_S

Make = Callable[..., RunDir]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.chdir(tmp_path)
    servers: list[Server] = []

    def start(run: RunDir | None = None) -> Server:
        server = open_server(run, 0)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def get(server: Server, path: str, host: str | None = None, method: str = "GET") -> tuple[int, Any, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=DEADLINE_S)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    response = connection.getresponse()
    content = response.read()
    headers = dict(response.getheaders())
    connection.close()
    if headers.get("Content-Encoding") == "gzip":
        return response.status, json.loads(gzip.decompress(content)), headers
    return response.status, content.decode(), headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil:80", " "]
)
def test_another_host_name_is_rejected(make_run: Make, serve: Callable[..., Server], host: str) -> None:
    make_run()
    server = serve()
    for path in ("/", "/run/demo", "/api/runs", "/api/run/demo/0.0.0.0"):
        status, content, _ = get(server, path, host)
        assert (status, content) == (403, "this host name is not served\n")


def test_the_server_listens_on_the_loopback_address(serve: Callable[..., Server]) -> None:
    assert serve().server_address[0] == "127.0.0.1"


def test_the_page_may_fetch_from_its_server_only(make_run: Make, serve: Callable[..., Server]) -> None:
    make_run()
    status, page, headers = get(serve(), "/run/demo")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in page.split("<style>")[0]


@pytest.mark.parametrize(
    "path",
    ["/secret.key", "/run/demo/secret.key", "/runs/demo/secret.key", "/run/../runs/demo/secret.key", "/api/secret.key"],
)
def test_files_are_not_served(make_run: Make, serve: Callable[..., Server], path: str) -> None:
    make_run()
    assert get(serve(), path)[0] == 404


@pytest.mark.parametrize("name", ["..%2Fruns%2Fdemo", "%2E%2E", "dem", "demo%00"])
def test_a_run_is_found_by_its_name_only(make_run: Make, serve: Callable[..., Server], name: str) -> None:
    make_run()
    status, content, _ = get(serve(), f"/api/run/{name}")
    assert status == 500
    assert content["error"].startswith("no run ")


def test_other_methods_are_rejected(serve: Callable[..., Server]) -> None:
    assert get(serve(), "/api/runs", method="POST")[0] == 501


def test_an_unknown_episode_is_named(make_run: Make, serve: Callable[..., Server]) -> None:
    make_run()
    assert get(serve(), "/api/run/demo/0.7.7.7")[1] == {"error": "run demo has no episode 0.7.7.7"}


def test_only_changes_are_sent_to_a_page_that_has_the_rest(make_run: Make, serve: Callable[..., Server]) -> None:
    run = make_run()
    server = serve()
    first = get(server, "/api/run/demo")[1]
    known = f"identity={first['identity']}&after={first['position']}&metrics={first['metrics_count']}"
    append(run, "samples", [sample_row(a_turn((2, 0, 0, 0), "new/task", Outcome.CORRECT))])
    append(run, "metrics", [metrics_row(2)])
    later = get(server, f"/api/run/demo?{known}")[1]
    assert [record[1:5] for record in later["records"]] == [[0, 2, 0, 0]]
    assert later["metrics"]["step"] == [2]
    assert not later["complete"]


def test_the_page_of_a_replaced_run_begins_anew(make_run: Make, serve: Callable[..., Server]) -> None:
    run = make_run()
    server = serve()
    first = get(server, "/api/run/demo")[1]
    kept = run.journal_path("samples").read_bytes().splitlines(keepends=True)[0]
    run.journal_path("samples").rename(run.path / "former")
    run.journal_path("samples").write_bytes(kept)
    later = get(server, f"/api/run/demo?identity={first['identity']}&after={first['position']}&metrics=2")[1]
    assert later["complete"]
    assert len(later["records"]) == 3


def test_the_page_shows_new_samples_without_a_reload(
    make_run: Make, serve: Callable[..., Server], open_url: Callable[..., Any]
) -> None:
    run = make_run()
    view = open_url(f"{serve().address(run)}#/samples?outcome=correct")
    assert len(view.ids()) == 4
    append(run, "samples", [sample_row(a_turn((2, 0, 0, 0), "new/task", Outcome.CORRECT))])
    view.page.wait_for_selector("text=new/task")
    assert len(view.ids()) == 5
    view.page.click("text=new/task")
    view.page.wait_for_selector(".turn")
    assert "x + 2.0.0.0" in view.text(".code")


def test_the_list_of_runs_leads_to_each(
    make_run: Make, serve: Callable[..., Server], open_url: Callable[..., Any]
) -> None:
    make_run()
    make_run(name="a b?#é")
    view = open_url(serve().address(None))
    assert view.page.locator("a.run .name").all_inner_texts() == ["a b?#é", "demo"]
    make_run(name="later")
    view.page.wait_for_selector("text=later")
    view.page.click("text='a b?#é'")
    view.page.wait_for_selector(".cards")
    view.page.click("text='‹ runs'")
    view.page.wait_for_selector("a.run")
    view.page.click("text='a b?#é'")
    view.page.wait_for_selector(".cards")
    assert view.text(".title") == "a b?#é"


def test_a_run_that_is_damaged_later_is_reported_on_the_page(
    make_run: Make, serve: Callable[..., Server], open_url: Callable[..., Any]
) -> None:
    run = make_run()
    view = open_url(serve(run).address(run))
    with run.journal_path("samples").open("a") as stream:
        stream.write("damage\n{}\n")
    view.page.wait_for_selector("[role=alert]:not([hidden])")
    assert "samples.jsonl:8: the line is not a JSON object" in view.text("[role=alert]")
    view.errors.clear()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("samples.jsonl", "damage\n{}\n", "samples.jsonl:1: the line is not a JSON object"),
        ("provenance.json", '{"kernelrl": "9.0"}', "was written by kernelrl 9.0"),
    ],
)
def test_a_run_that_cannot_be_read_is_one_line_with_its_fix(
    make_run: Make, capsys: pytest.CaptureFixture[str], file: str, content: str, message: str
) -> None:
    run = make_run()
    (run.path / file).write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["view", str(run.path), "--port", "0"])
    assert ended.value.code in (1, 2)
    line, fix, more = capsys.readouterr().err.splitlines()
    assert message in line
    assert fix.startswith("kernelrl: fix: ")
    assert more.startswith("kernelrl: more: kernelrl explain run-")


def test_a_run_without_samples_is_shown(
    make_run: Make, serve: Callable[..., Server], open_url: Callable[..., Any]
) -> None:
    run = make_run([], [], metrics=[])
    view = open_url(serve(run).address(run))
    assert "This run has no samples yet." in view.text()
    for fragment in ("#/samples", "#/tasks", "#/best", "#/suspects", "#/held-out"):
        view.go(fragment)


def test_a_port_in_use_is_one_line(
    make_run: Make, serve: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    make_run()
    port = serve().server_port
    with pytest.raises(SystemExit) as ended:
        main(["view", "demo", "--port", str(port)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"kernelrl: port {port} is used by another process",
        "kernelrl: fix: --port 0 selects a free one",
        "kernelrl: more: kernelrl explain port",
    ]
