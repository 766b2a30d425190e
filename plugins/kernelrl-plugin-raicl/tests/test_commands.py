"""`kernelrl index`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from kernelrl_core.api.errors import LookupFailed, UsageError
from kernelrl_plugin_raicl.commands import command
from kernelrl_plugin_raicl.config import Bm25Config

REFERENCE = "starter/2/softmax"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("starter") / "index"
    options = ("--backend", "triton", "--protect", "none")
    result = run("build", "--corpora", "starter", *options, "--output", directory, "--json")
    assert result.exit_code == 0, result.output
    manifest = json.loads(result.stdout)
    assert manifest["backends"].keys() == {"triton"}
    assert manifest["dense"] is None
    return directory


@pytest.mark.parametrize(
    ("flag", "ours"),
    [
        (["--triton-only"], "--backend triton"),
        (["--cuda-only"], "--backend cuda"),
        (["--model", "bge-small"], "--embedder NAME"),
        (["--sakana-levels", "1,2"], "--levels 1,2,3"),
    ],
)
def test_flags_of_the_published_builder_name_ours(flag: list[str], ours: str, tmp_path: Path) -> None:
    result = run("build", "--corpora", "starter", "--output", tmp_path / "index", *flag)
    assert result.exit_code == 2
    assert f"no option {flag[0]}; write {ours}" in result.output


def test_unknown_corpus_and_levels(tmp_path: Path) -> None:
    result = run("build", "--corpora", "kernelbok", "--output", tmp_path / "index")
    assert isinstance(result.exception, LookupFailed)
    assert "kernelbook" in str(result.exception)
    result = run("build", "--corpora", "starter", "--levels", "one", "--output", tmp_path / "index")
    assert isinstance(result.exception, UsageError)


def test_info_describes_and_verifies(starter: Path) -> None:
    document = json.loads(run("info", starter, "--json").stdout)
    assert document["records"] == document["backends"]["triton"] > 100
    assert len(document["manifest_sha256"]) == 64
    text = run("info", starter).stdout
    assert f"records     {document['records']} (triton {document['records']})" in text


def test_info_counts_leaks_of_a_recipe(starter: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: smoke\nbackend: {use: triton}\n")
    leaks = json.loads(run("info", starter, "--recipe", recipe, "--json").stdout)["leaks"]
    assert leaks["backend"] == "triton"
    assert 0 < leaks["training"] <= leaks["records"]
    assert "records for backend triton" in run("info", starter, "--recipe", recipe).stdout


def test_query_shows_examples_and_leaks(starter: Path) -> None:
    document: dict[str, Any] = json.loads(run("query", starter, REFERENCE, "-k", 4, "--json").stdout)
    assert len(document["examples"]) == 4
    assert document["excluded"][0]["name"] == REFERENCE
    assert document["excluded"][0]["reason"] == "leak_task"
    assert REFERENCE not in {example["name"] for example in document["examples"]}
    text = run("query", starter, REFERENCE).stdout
    assert "excluded: leak_task" in text
    assert text.count("\n") >= 4


def test_query_of_a_file_and_more_examples_than_records(starter: Path, tmp_path: Path) -> None:
    task = tmp_path / "task.py"
    task.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.cumsum(x, 0)\n\n"
        "def get_inputs():\n    return [torch.randn(3)]\n\ndef get_init_inputs():\n    return []\n"
    )
    document = json.loads(run("query", starter, task, "-k", 100000, "--json").stdout)
    records = json.loads(run("info", starter, "--json").stdout)["records"]
    assert 100 < len(document["examples"]) + len(document["excluded"]) <= records


def test_query_with_dense_search_needs_vectors(starter: Path) -> None:
    result = run("query", starter, REFERENCE, "--retriever", "faiss")
    assert isinstance(result.exception, UsageError)
    assert "--embedder" in result.exception.fix


def test_query_of_another_backend(starter: Path) -> None:
    result = run("query", starter, REFERENCE, "--backend", "hip")
    assert isinstance(result.exception, UsageError)
    assert "no kernels for backend 'hip'" in result.exception.message


def test_fix_of_a_missing_index_is_a_valid_command(tmp_path: Path) -> None:
    words = shlex.split(Bm25Config(index=tmp_path / "my index").requires().fix)
    assert words[:2] == ["kernelrl", "index"]
    assert isinstance(command, click.Group)
    build = command.commands[words[2]]
    assert build.make_context("build", words[3:]).params["output"] == tmp_path / "my index"
