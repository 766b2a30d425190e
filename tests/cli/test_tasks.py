"""`kernelrl tasks`: results on stdout, talk on stderr, errors that say what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelrl_core.cli.main import main

TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\nraise SystemExit('executed')\n"

pytest.importorskip("kernelrl_plugin_kernelbench")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for level, name in ((1, "relu"), (1, "gelu"), (2, "softmax")):
        (tmp_path / f"level{level}").mkdir(exist_ok=True)
        (tmp_path / f"level{level}" / f"{name}.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["tasks", *arguments])
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


def test_list_takes_a_source_and_its_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["list", "--use", "directory", "path=.", "holdout={names: [gelu]}"]
    code, out, err = run(capsys, *arguments, "--json")
    rows = json.loads(out)["tasks"]
    assert code == 0
    assert [(row["id"], row["split"], row["level"]) for row in rows] == [
        ("directory/level1/relu", "train", 1),
        ("directory/level2/softmax", "train", 2),
        ("directory/level1/gelu", "held_out", 1),
    ]
    code, out, err = run(capsys, *arguments, "--level", "1", "--split", "train")
    assert out.splitlines() == ["directory/level1/relu  level 1  train"]
    assert err == "1 tasks\n"


def test_list_and_show_state_the_dtypes_that_the_source_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "level2" / "softmax.py").write_text(f"{TASK}x = torch.float16, y.long()\n")
    source = ["--use", "directory", "path=."]
    _, out, _ = run(capsys, "list", *source)
    assert "directory/level2/softmax  level 2  train  float16,int64" in out
    _, out, _ = run(capsys, "list", *source, "--json")
    assert [row["named_dtypes"] for row in json.loads(out)["tasks"]] == [[], [], ["float16", "int64"]]
    _, out, _ = run(capsys, "show", "directory/level2/softmax", *source[:2], "path=.")
    assert "# named_dtypes  float16 int64\n" in out


def test_show_prints_the_reference_of_a_file_and_of_an_id(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "level1/relu.py")
    assert code == 0
    assert out.endswith(TASK)
    code, out, _ = run(capsys, "show", "directory/level2/softmax", "path=.", "--use", "directory", "--json")
    assert json.loads(out)["reference"] == TASK


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["list", "--use", "directry"], 2, "did you mean 'directory'"),
        (["list", "--use", "directory", "paht=."], 2, "did you mean 'path'"),
        (["list", "--use", "directory", "path=nowhere"], 2, "no such directory"),
        (["list", "--use", "directory", "path=.", "--split", "test"], 2, "no split 'test'"),
        (["list", "--use", "directory", "--recipe", "quickstart"], 2, "exclude each other"),
        (["list", "--use", "kernelbench", "root=nowhere"], 3, "fix: git clone https://"),
        (["show", "nowhere.py"], 2, "no such file"),
    ],
)
def test_mistakes_end_with_a_message_and_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    actual, out, err = run(capsys, *arguments)
    assert (actual, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_only_the_tasks_of_a_recipe_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = folder / "r.yaml"
    recipe.write_text("tasks: {use: directory, path: level1}\npolicy: {use: nowhere}\ntrain: {sets: 3}\n")
    code, out, err = run(capsys, "list", "-r", str(recipe), "tasks.holdout={names: [gelu]}")
    assert (code, len(out.splitlines())) == (0, 2), err
    code, _, err = run(capsys, "list", "-r", str(recipe), "train.steps=3")
    assert (code, err) == (2, "kernelrl: command line: train: has no effect here; known: tasks\n")
