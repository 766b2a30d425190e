"""`kernelrl recipes convert`: output, refusals, files that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.api.components import Registry
from kernelrl_testing.core import main_module

Call = Callable[..., tuple[int, str, str]]
THEIRS = "log_path: ./runs/first\ndataset_builder: {level: 2, batch_size: 3}\n"


@pytest.fixture
def convert(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command in a directory with `theirs.yaml`: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(THEIRS)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(["recipes", "convert", *arguments])
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return run


def test_the_recipe_is_printed_or_written(convert: Call, tmp_path: Path) -> None:
    code, out, err = convert("theirs.yaml", "dataset_builder.level=1")
    assert (code, err) == (
        0,
        "kernelbench-tinker: 2 keys converted, 1 kept as comments\n",
    )
    assert "tasks:\n  use: kernelbench\n  levels: [1]\n" in out
    code, named, _ = convert("theirs.yaml", "dataset_builder.level=1", "--output", "ours.yaml")
    assert (code, named) == (0, "ours.yaml\n")
    assert (tmp_path / "ours.yaml").read_text() == out.replace("recipes/theirs.yaml", "ours.yaml").replace(
        "# theirs: ", "# ours: "
    )


def test_an_existing_file_is_kept_without_force(convert: Call, tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("mine")
    code, _, err = convert("theirs.yaml", "-o", "ours.yaml")
    assert (code, (tmp_path / "ours.yaml").read_text()) == (2, "mine")
    assert "fix: choose another path, or add --force" in err
    assert convert("theirs.yaml", "-o", "ours.yaml", "--force")[0] == 0
    assert (tmp_path / "ours.yaml").read_text() != "mine"


def test_a_value_that_no_recipe_may_have_is_an_error_with_its_line_and_nothing_is_written(
    convert: Call, tmp_path: Path
) -> None:
    code, out, err = convert("theirs.yaml", "dataset_builder.batch_size=0", "loss_fn=pppo", "-o", "ours.yaml")
    assert (code, out) == (2, "")
    assert "command line: train.tasks_per_step: expected an integer of at least 1, got 0" in err
    (tmp_path / "theirs.yaml").write_text("dataset_builder:\n  level: 1\n  batch_size: 0\n")
    assert "theirs.yaml:3: train.tasks_per_step: expected" in convert("theirs.yaml", "-o", "ours.yaml")[2]
    assert not (tmp_path / "ours.yaml").exists()


def test_a_foreign_file_is_refused_in_one_line(convert: Call, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("trainer: {epochs: 1}\nmodel_nam: x\n")
    code, out, err = convert("other.yaml")
    first, *rest = err.splitlines()
    assert (code, out, len(rest)) == (2, "", 2)
    assert "belongs to neither kernel-rl nor kernelbench-tinker" in first
    assert "'model_nam' is like 'model_name'" in first


def test_plugins_that_are_not_installed_are_a_warning(
    convert: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kernelrl_core.api.components import registry

    core = Registry(tuple(plugin for plugin in registry().plugins if plugin.name in ("adapters", "core")))
    for module in ("kernelrl_core.plugins.registry", "kernelrl_core.api.components"):
        monkeypatch.setattr(f"{module}.registry", lambda: core)
    code, _, err = convert("theirs.yaml", "-o", "ours.yaml")
    assert (code, (tmp_path / "ours.yaml").is_file()) == (0, True)
    assert "warning: " in err
    assert "kernelrl-plugin-tinker is not installed" in err
