"""`kernelrl optimize` against a server on 127.0.0.1 and policy `scripted`, with an evaluator that reads the reply."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import Command, CommandServer
from kernelrl_openai_server import OpenAIServer

from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[3] / "tests/fakes"
TASK = "fake/train/0"
RECIPE = """
tasks:      {use: fake}
backend:    {use: fake}
policy:     {use: openai, model: tiny, logprobs: false, resend: false, patience_s: 0.5}
evaluator:  {use: fake}
feedback:   {use: fake}
forbid:     []
rewards:    {correct: {use: fake}}
evaluation: {timing: true}
sampling:   {max_tokens: 200}
episode:    {turns: 3}
eval:       {samples: 2, search: {method: refine}}
"""
PRICES = "cost.prices={prompt: 1000, reply: 1000}"
"""US dollars per million tokens: a thousandth of a dollar each."""

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def kernel(speedup: float | str, returned: str = "right") -> str:
    return f"# speedup {speedup}\nclass ModelNew:\n    def forward(self, x):\n        return {returned!r}\n"


def reply(speedup: float | str, returned: str = "right") -> str:
    return f"Here it is.\n```python\n{kernel(speedup, returned)}```"


class Model:
    """Each reply is faster than all before, or the next of `replies`."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self._lock, self._count = threading.Lock(), 0

    def __call__(self, messages: list[dict[str, str]]) -> str:
        with self._lock:
            if "Say yes." in messages[-1]["content"]:
                return "yes"
            self._count += 1
            return self.replies.pop(0) if self.replies else reply(1 + self._count / 10)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Iterator[OpenAIServer]:
    with OpenAIServer(model) as server:
        yield server


@pytest.fixture(scope="module")
def warm_server() -> Iterator[CommandServer]:
    with CommandServer("openai", "jinja2", "kernelrl_experiments.optimize.command") as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, warm_server: CommandServer) -> Callable[..., Command]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("OPENAI_API_KEY", None)
    return lambda *arguments: warm_server.start(*arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def kernelrl(start: Callable[..., Command]) -> Call:
    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return start(*arguments).result(code)

    return call


@pytest.fixture
def optimize(kernelrl: Call, server: OpenAIServer) -> Call:
    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        given = ("--recipe", "small.yaml", "--base-url", server.url)
        return kernelrl("optimize", TASK, *given, *arguments, code=code)

    return call


def the_run(folder: Path) -> Path:
    (found,) = (folder / "runs").glob("*")
    return found


def rows(run: Path) -> list[dict[str, Any]]:
    # The last line of a search that still works may not be complete.
    complete = (run / "eval_samples.jsonl").read_text().rpartition("\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


# --- a search -------------------------------------------------------------------------------------------------------


def test_the_best_kernel_of_the_log_is_written(optimize: Call, kernelrl: Call, tmp_path: Path) -> None:
    found = json.loads(optimize("-o", "best.py", "--json").stdout)
    assert found["best"]["speedup"] == max(row["speedup"] for row in rows(the_run(tmp_path))) == 1.6
    assert (tmp_path / "best.py").read_text() == found["best"]["source"] == kernel(1.6)
    kernelrl("export", found["run"], "--as", "kernels", "--output", "kernels")
    exported = json.loads((tmp_path / "kernels/kernels.json").read_text())["kernels"]
    assert [entry["kernel_sha256"] for entry in exported] == [found["best"]["kernel_sha256"]]


def test_the_best_kernel_has_the_times_of_another_evaluation(optimize: Call, model: Model) -> None:
    model.replies = [reply("3.0 2.0"), reply("2.5 2.4"), *[reply(1)] * 4]
    done = optimize("--json")
    best = json.loads(done.stdout)["best"]
    assert (best["turn"] in (0, 1), best["selected_speedup"], best["speedup"]) == (True, 3.0, 2.0)
    assert "measuring the best kernel again" in done.stderr


def test_a_kernel_that_is_wrong_when_it_is_measured_again_is_not_the_best(optimize: Call, model: Model) -> None:
    model.replies = [reply("3.0 0"), reply("2.5 2.4"), *[reply(1)] * 4]
    best = json.loads(optimize("--json").stdout)["best"]
    assert (best["selected_speedup"], best["speedup"]) == (2.5, 2.4)


def test_a_round_continues_from_the_best_kernel_and_its_feedback(optimize: Call, server: OpenAIServer) -> None:
    optimize()
    sent = [body["messages"] for body in server.requests[1:]]
    assert [len(messages) for messages in sent[:2]] == [len(sent[0])] * 2
    assert all("# speedup 1.2" in messages[-2]["content"] for messages in sent[2:4])


def test_each_round_prints_one_line(optimize: Call) -> None:
    lines = [line for line in optimize().stderr.splitlines() if line.startswith("round ")]
    assert [line.split("  ")[:3] for line in lines] == [
        ["round 1/3", "best 1.20x", "2 replies: 2 correct"],
        ["round 2/3", "best 1.40x", "2 replies: 2 correct"],
        ["round 3/3", "best 1.60x", "2 replies: 2 correct"],
    ]


def test_a_wrong_kernel_is_named_and_repaired_first(
    optimize: Call, server: OpenAIServer, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(kernel(1, "wrong"))
    done = optimize("mine.py")
    assert "mine.py is incorrect: the values differ; the search repairs it first" in done.stderr
    first = server.requests[1]["messages"]
    assert "return 'wrong'" in first[-2]["content"]
    assert "the values differ" in first[-1]["content"]


def test_a_given_kernel_that_no_reply_beats_is_the_best(optimize: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(kernel(9))
    found = json.loads(optimize("mine.py", "--json").stdout)
    assert found["best"]["given"]
    assert found["best"]["speedup"] == 9
    assert found["replies"] == 6


def test_a_function_of_a_package_is_improved_with_the_package_as_it_was(
    optimize: Call, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/own.py").write_text("def relu(x):\n    return 'right'\n")
    (tmp_path / "src/mine.py").write_text("# speedup 9\nfrom own import relu\n\n\ndef fast(x):\n    return relu(x)\n")
    given = ("src/mine.py", "--function", "fast", "--path", "src", "--name", "a")
    found = json.loads(optimize(*given, "--json").stdout)
    assert (found["best"]["given"], found["best"]["speedup"]) == (True, 9)
    (tmp_path / "src/own.py").write_text("def relu(x):\n    return 'wrong'\n")
    assert "it differs in package" in optimize(*given, code=2).stderr


def test_a_suspect_is_never_the_best(optimize: Call, model: Model) -> None:
    model.replies = [reply(1, "wrong")] * 6
    found = json.loads(optimize("--json", code=1).stdout)
    assert found["best"] is None
    assert found["outcomes"] == {"incorrect": 6}


@pytest.mark.parametrize("method", ["refine", "best_of_n", "beam", "islands"])
def test_every_method_uses_all_rounds(method: str, optimize: Call, server: OpenAIServer) -> None:
    found = json.loads(optimize("--method", method, "--json").stdout)
    assert (found["replies"], found["rounds"], found["stopped_by"]) == (6, 3, "rounds")
    continued = [sum(message["role"] == "assistant" for message in body["messages"]) for body in server.requests[1:]]
    assert (max(continued) > 0) == (method != "best_of_n")


def test_the_report_has_the_tree_of_attempts(optimize: Call, tmp_path: Path) -> None:
    from kernelrl_core.api.runs import RunDir
    from kernelrl_report.index import FIELDS, RunIndex

    optimize()
    run = the_run(tmp_path)
    assert (run / "report.html").is_file()
    index = RunIndex(RunDir(run))
    index.refresh()
    parents = [record[FIELDS.index("parents")] for record in index.records]
    # Which reply of a round comes first, and so the number of the best one, is chance.
    assert sorted(map(len, parents)) == [0, 0, 1, 1, 2, 2]
    facts = dict(index.document()["facts"])
    assert re.fullmatch("1.60x; attempt [45], round 3", facts["best"])
    assert "prompt tokens" in facts["cost"]


def test_a_search_is_shown_as_one_and_not_as_training(optimize: Call, kernelrl: Call, tmp_path: Path) -> None:
    optimize()
    shown = kernelrl("runs", "show", the_run(tmp_path).name).stdout
    assert re.search("1.60x; attempt [45], round 3", shown)
    assert "train" not in shown


# --- the end of a search --------------------------------------------------------------------------------------------


def test_the_budget_is_never_exceeded(optimize: Call, server: OpenAIServer) -> None:
    found = json.loads(optimize("--budget-usd", "3.0", PRICES, "--width", "4", "--rounds", "50", "--json").stdout)
    used = [1 + len(reply(1.1).split()) for body in server.requests[1:]]
    assert found["stopped_by"] == "budget"
    assert found["usd"] <= 3.0
    assert found["usd"] == pytest.approx(sum(used) / 1000)
    # A reply that would fit at its highest price is sampled.
    assert found["replies"] == len(used) > 4


def test_a_budget_that_does_not_suffice_for_one_reply_is_refused(optimize: Call, server: OpenAIServer) -> None:
    done = optimize("--budget-usd", "0.1", PRICES, code=2)
    assert "not one reply was sampled" in done.stderr
    assert "fix: raise --budget-usd, or lower sampling.max_tokens" in done.stderr


def test_a_budget_needs_prices(optimize: Call, server: OpenAIServer) -> None:
    assert "set cost.prices.prompt, cost.prices.reply, in USD" in optimize("--budget-usd", "1", code=2).stderr
    assert server.requests == []


def test_evaluations_are_limited(optimize: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(kernel(1))
    found = json.loads(optimize("mine.py", "--evaluations", "4", "--json").stdout)
    assert (found["stopped_by"], found["evaluations"], found["replies"]) == ("evaluations", 4, 3)


def test_the_search_ends_at_the_target(optimize: Call) -> None:
    found = json.loads(optimize("--target-speedup", "1.2", "--json").stdout)
    assert (found["stopped_by"], found["rounds"]) == ("target", 1)


def test_the_search_ends_without_progress(optimize: Call, model: Model) -> None:
    model.replies = [reply(2)] * 20
    found = json.loads(optimize("--rounds", "8", "--patience", "2", "--json").stdout)
    assert (found["stopped_by"], found["rounds"]) == ("no_progress", 3)


def test_kernels_that_cannot_be_timed_end_the_search_when_one_is_correct(optimize: Call, model: Model) -> None:
    model.replies = [reply(1, "wrong"), reply(1, "wrong")]
    done = optimize("evaluator.untimed=true", "--json")
    assert "kernels are not timed here: the fake has no clock" in done.stderr
    found = json.loads(done.stdout)
    assert (found["rounds"], found["stopped_by"]) == (2, "untimed")
    assert found["best"]["speedup"] is None


# --- continuing -----------------------------------------------------------------------------------------------------

SCRIPT = [{"reply": reply(1 + number / 10, "wrong" if number % 3 == 0 else "right")} for number in range(40)]
SAME = ("sample", "parents", "prompt", "reply", "outcome", "speedup", "score")


def scripted(folder: Path, seconds: float) -> tuple[str, ...]:
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    policy = f"policy={{use: scripted, path: script.json, seconds_per_reply: {seconds}}}"
    return ("optimize", TASK, "--recipe", "small.yaml", policy, "--rounds", "6", "--patience", "6", "--json")


@pytest.mark.parametrize("method", ["refine", "islands"])
def test_a_search_that_was_killed_equals_an_undisturbed_one(
    method: str, start: Callable[..., Command], kernelrl: Call, tmp_path: Path
) -> None:
    command = (*scripted(tmp_path, 0.15), "--method", method)
    whole = json.loads(kernelrl(*command, "--name", "whole").stdout)
    process = start(*command, "--name", "killed")
    run = tmp_path / "runs/killed"
    wait_until(lambda: (run / "eval_samples.jsonl").exists() and len(rows(run)) >= 5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 5 <= len(rows(run)) < 12
    killed = json.loads(kernelrl(*command, "--name", "killed").stdout)

    def content(name: str) -> list[list[Any]]:
        return sorted([row.get(key) for key in SAME] for row in rows(tmp_path / "runs" / name))

    assert content("killed") == content("whole")
    assert killed["best"] == whole["best"]


def test_an_interrupted_search_names_the_command_that_continues_it(
    start: Callable[..., Command], kernelrl: Call, tmp_path: Path
) -> None:
    command = (*scripted(tmp_path, 0.15), "--name", "mine")
    process = start(*command)
    run = tmp_path / "runs/mine"
    wait_until(lambda: (run / "eval_samples.jsonl").exists() and len(rows(run)) >= 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "all attempts are saved; continue with: kernelrl optimize --resume runs/mine" in err
    assert json.loads((run / "state.json").read_text())["state"] == "stopped"
    assert json.loads(kernelrl("optimize", "--resume", "mine", "--json").stdout)["replies"] == 12


@pytest.mark.parametrize("name", ["../x", "", ".x"])
def test_a_name_of_no_directory_below_runs_is_refused(name: str, kernelrl: Call, tmp_path: Path) -> None:
    done = kernelrl(*scripted(tmp_path, 0), "--name", name, code=2)
    assert "must be a directory name" in done.stderr


def test_a_finished_search_is_not_repeated_and_continues_with_more_rounds(
    optimize: Call, kernelrl: Call, server: OpenAIServer, tmp_path: Path
) -> None:
    first = json.loads(optimize("--json", "-o", "best.py").stdout)
    sent = len(server.requests)
    assert json.loads(optimize("--json", "-o", "best.py").stdout) == first
    assert len(server.requests) == sent
    more = json.loads(kernelrl("optimize", "--resume", first["run"], "--rounds", "4", "--json").stdout)
    assert (more["replies"], more["best"]["speedup"]) == (8, 1.8)
    assert len(server.requests) == sent + 1 + 2


def test_an_existing_output_file_is_not_overwritten(optimize: Call, server: OpenAIServer, tmp_path: Path) -> None:
    (tmp_path / "best.py").write_text("mine")
    assert "already exists" in optimize("-o", "best.py", code=2).stderr
    assert server.requests == []
    optimize("-o", "best.py", "--force")
    assert (tmp_path / "best.py").read_text() == kernel(1.6)


def test_a_training_command_does_not_continue_a_search(optimize: Call, kernelrl: Call, tmp_path: Path) -> None:
    optimize()
    name = the_run(tmp_path).name
    assert f"fix: kernelrl optimize --resume runs/{name}" in kernelrl("resume", name, code=2).stderr


# --- endpoints ------------------------------------------------------------------------------------------------------


def test_an_endpoint_that_is_down_is_a_missing_prerequisite(kernelrl: Call) -> None:
    done = kernelrl("optimize", TASK, "--recipe", "small.yaml", "--base-url", "http://127.0.0.1:9/v1", code=3)
    assert "no connection" in done.stderr


def test_an_endpoint_that_fails_during_the_search_loses_nothing(
    optimize: Call, server: OpenAIServer, tmp_path: Path
) -> None:
    server.fail = lambda body: "429" if len(server.requests) > 3 else ""
    done = optimize(code=1)
    assert "status 429" in done.stderr
    assert f"continue with: kernelrl optimize --resume runs/{the_run(tmp_path).name}" in done.stderr
    assert len(rows(the_run(tmp_path))) == 2
    server.fail = lambda body: ""
    assert json.loads(optimize("--json").stdout)["replies"] == 6


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("no_choices", "incomplete response"),
        ("not_json", "the response is not the JSON of an OpenAI-compatible server"),
        ("half", "incomplete response"),
        ("broken", "no connection"),
    ],
)
def test_an_unusable_response_loses_its_reply_only(
    failure: str, message: str, optimize: Call, server: OpenAIServer, tmp_path: Path
) -> None:
    server.fail = lambda body: failure if len(server.requests) == 3 else ""
    found = json.loads(optimize("--json", "policy.max_concurrent=1", PRICES).stdout)
    assert found["outcomes"] == {"correct": 5, "infra_error": 1}
    lost = next(row for row in rows(the_run(tmp_path)) if row["outcome"] == "infra_error")
    assert message in lost["message"]
    # It may have been paid.
    assert found["usd"] > 0.2


def test_a_round_without_any_reply_ends_the_search_with_the_reason(
    optimize: Call, server: OpenAIServer, tmp_path: Path
) -> None:
    server.fail = lambda body: "no_choices" if len(server.requests) > 1 else ""
    done = optimize(code=1)
    assert "every reply of round 1 was lost; the last error: policy openai" in done.stderr
    server.fail = lambda body: ""
    assert json.loads(optimize("--json").stdout)["outcomes"] == {"correct": 6}


def test_a_slow_endpoint_loses_its_reply(optimize: Call, server: OpenAIServer, model: Model, tmp_path: Path) -> None:
    released = threading.Event()
    fast = server.write_reply

    def slow(messages: list[dict[str, str]]) -> str:
        if len(server.requests) == 2:
            released.wait(DEADLINE_S)
        return fast(messages)

    server.write_reply = slow
    try:
        done = optimize("--json", "policy.timeout_s=1", "policy.max_concurrent=1")
    finally:
        released.set()
    assert json.loads(done.stdout)["outcomes"]["infra_error"] >= 1
    assert any("no response within 1 s" in row["message"] for row in rows(the_run(tmp_path)))


def test_replies_without_a_kernel_are_counted_with_their_reason(
    optimize: Call, model: Model, server: OpenAIServer, tmp_path: Path
) -> None:
    model.replies = ["", "I cannot help with that.", f"{reply(1.1, 'wrong')}\nBetter:\n{reply(1.2)}", "word " * 300]
    done = optimize("--rounds", "2", "--patience", "9")
    assert "2 replies: 2 format_error (2 without a code block)" in done.stderr
    assert "2 replies: 1 format_error (1 truncated), 1 correct" in done.stderr
    assert "1 of the replies, at sampling.max_tokens=200; raise it" in done.stdout
