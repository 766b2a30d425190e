"""A server in a process of its own: killed and restarted, disconnected clients, its address, its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from service_servers import PATIENCE_S, PROCESS, TASK, Process

from kernelrl_testing.waiting import wait_until

Start = Callable[..., Process]


def body(source: str) -> dict[str, Any]:
    return {"source": source, "backend": "triton", "task_id": TASK}


def evaluated(directory: Path) -> Counter[str]:
    """Hash of a candidate -> number of its evaluations."""
    path = directory / "evaluated.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def test_accepted_evaluations_survive_kill_9(start_process: Start, tmp_path: Path) -> None:
    server = start_process(seconds=0.2)
    requests = [body(f"right {index}") for index in range(60)]
    accepted = httpx.post(f"{server.url}/v1/evaluations/batch", json={"requests": requests}, timeout=PATIENCE_S)
    assert accepted.status_code == 202, accepted.text
    ids = [one["id"] for one in accepted.json()["evaluations"]]
    wait_until(lambda: len(evaluated(tmp_path)) > 20, what="some evaluations have started")
    server.kill()

    again = start_process(seconds=0.05)
    with httpx.Client(base_url=again.url, timeout=PATIENCE_S) as http:
        # Nobody posts anything: the server continues by itself.
        found = [http.get(f"/v1/evaluations/{id_}", params={"wait": 60}) for id_ in ids]
    assert [answer.json()["status"] for answer in found] == ["done"] * 60
    assert len(evaluated(tmp_path)) == 60


def test_a_stored_result_is_not_evaluated_again_after_kill_9(start_process: Start, tmp_path: Path) -> None:
    server = start_process()
    url = f"{server.url}/v1/evaluations?wait=60"
    first = httpx.post(url, json=body("right"), timeout=PATIENCE_S).json()
    server.kill()
    again = start_process()
    second = httpx.post(f"{again.url}/v1/evaluations?wait=60", json=body("right"), timeout=PATIENCE_S).json()
    assert second == {**first, "cached": True}
    assert evaluated(tmp_path).total() == 1


def test_clients_whose_server_is_killed_three_times_get_every_result(start_process: Start, tmp_path: Path) -> None:
    port = unused_port()
    options = ("--listen", f"127.0.0.1:{port}")
    servers = [start_process(*options, seconds=0.02)]
    results: dict[str, str] = {}

    def evaluated_now(source: str) -> bool:
        try:
            response = http.post("/v1/evaluations?wait=30", json=body(source))
        except httpx.TransportError:  # the server is killed, or starts
            return False
        if response.status_code == 200 and response.json()["status"] == "done":
            results[source] = response.json()["evaluation"]["outcome"]
        return source in results

    def evaluate(source: str) -> None:
        wait_until(lambda: evaluated_now(source), what=source)

    sources = [f"{'right' if index % 3 else 'wrong'} {index}" for index in range(80)]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as http,
        ThreadPoolExecutor(8) as threads,
    ):
        done = threads.map(evaluate, sources)
        for killed in range(3):
            wait_until(lambda killed=killed: len(results) > 15 * (killed + 1), what="results arrive")
            servers[-1].kill()
            servers.append(start_process(*options, seconds=0.02))
        list(done)
    assert results == {source: "correct" if "right" in source else "incorrect" for source in sources}
    assert len(evaluated(tmp_path)) == len(sources)


def test_a_client_that_disconnects_cancels_its_evaluation(start_process: Start) -> None:
    server = start_process("--queue", "1", seconds=600)
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0)) as client:
        content = b'{"source": "right", "backend": "triton", "task_id": "relu"}'
        head = f"POST /v1/evaluations?wait=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
        wait_until(lambda: capacity(server)["running"] == 1, what="the evaluation begins")
    wait_until(lambda: capacity(server)["running"] == 0, what="the evaluation is cancelled")


def test_a_client_that_posted_without_wait_need_not_stay(start_process: Start) -> None:
    server = start_process(seconds=3)
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        place = http.post("/v1/evaluations", json=body("right")).headers["location"]
    found = httpx.get(f"{server.url}{place}?wait=60", timeout=PATIENCE_S)
    assert found.json()["status"] == "done"


def test_a_server_that_is_stopped_responds_to_waiting_clients_and_continues_later(start_process: Start) -> None:
    server = start_process(seconds=600)
    with ThreadPoolExecutor(1) as clients:
        url = f"{server.url}/v1/evaluations?wait=60"
        waiting = clients.submit(lambda: httpx.post(url, json=body("right"), timeout=PATIENCE_S))
        wait_until(lambda: capacity(server)["running"] == 1, what="the evaluation begins")
        server.process.send_signal(signal.SIGTERM)
        answer = waiting.result(PATIENCE_S)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:kernelrl:closing")
    assert server.process.wait(PATIENCE_S) == 0
    again = start_process(seconds=0)
    found = httpx.post(f"{again.url}/v1/evaluations?wait=60", json=body("right"), timeout=PATIENCE_S)
    assert found.json()["status"] == "done"


def test_a_unix_socket_is_for_this_user_alone(start_process: Start, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    server = start_process("--unix", str(path))
    assert server.address == {"unix": str(path)}
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://kernelrl") as http:
        assert http.get("/healthz").json()["status"] == "ok"
    server.kill()
    # The socket of a killed server is no obstacle.
    again = start_process("--unix", str(path))
    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(PATIENCE_S) == 0
    assert not path.exists()


def test_a_port_in_use_is_one_clear_line(start_process: Start, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, err = ended(tmp_path, "--listen", f"127.0.0.1:{port}")
    assert code == 2
    assert err.splitlines()[0] == f"127.0.0.1:{port} is in use"


def test_two_servers_cannot_share_a_state(start_process: Start, tmp_path: Path) -> None:
    start_process()
    code, err = ended(tmp_path, "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    assert (code, "another server uses" in err) == (2, True)


def capacity(server: Process) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/v1/capacity", timeout=PATIENCE_S).json()
    return found


def ended(directory: Path, *options: str) -> tuple[int, str]:
    """Exit code and errors of a server that does not start."""
    command = [sys.executable, str(PROCESS), "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, timeout=PATIENCE_S)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def unused_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
