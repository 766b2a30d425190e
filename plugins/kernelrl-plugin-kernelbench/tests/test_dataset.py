"""Tasks from the rows of a file or of a fake hub."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_kernelbench.config import Columns, DatasetConfig, FractionHoldout, NamedHoldout
from kernelrl_plugin_kernelbench.dataset import DatasetTasks


@pytest.fixture
def rows(task_source) -> list[dict[str, Any]]:
    return [
        {
            "code": task_source(n),
            "level": 1 + n % 2,
            "name": f"{n}_Scale",
            "problem_id": n,
            "kind": "a" if n < 3 else "b",
        }
        for n in range(1, 7)
    ]


@pytest.fixture
def jsonl(tmp_path: Path, rows) -> Path:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return path


def ids(config: DatasetConfig, split: str = "train") -> list[str]:
    return [task.id for task in DatasetTasks(config).tasks(split)]


def test_rows_in_kernelbenchs_layout_need_no_column_map(jsonl: Path) -> None:
    tasks = DatasetTasks(DatasetConfig(path=jsonl)).tasks("train")
    assert [task.id for task in tasks][:2] == ["dataset/set/2/1", "dataset/set/1/2"]
    assert (tasks[0].level, tasks[0].name) == (2, "1_Scale")


def test_json_and_parquet_give_the_same_tasks(jsonl: Path, tmp_path: Path, rows) -> None:
    as_json = tmp_path / "set.json"
    as_json.write_text(json.dumps(rows))
    assert ids(DatasetConfig(path=as_json)) == ids(DatasetConfig(path=jsonl))
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "set.parquet")
    assert ids(DatasetConfig(path=tmp_path / "set.parquet")) == ids(DatasetConfig(path=jsonl))


def test_columns_are_mapped_by_name(tmp_path: Path, task_source) -> None:
    path = tmp_path / "own.jsonl"
    rows = [{"key": f"k{n}", "py": task_source(n), "part": "held_out" if n == 1 else "train"} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    config = DatasetConfig(path=path, columns=Columns(id="key", reference="py", split="part"))
    assert ids(config) == ["dataset/own/k0", "dataset/own/k2"]
    assert ids(config, "held_out") == ["dataset/own/k1"]


def test_the_id_of_a_row_without_an_id_column_is_its_number(tmp_path: Path, task_source) -> None:
    path = tmp_path / "bare.jsonl"
    path.write_text("\n".join(json.dumps({"reference": task_source(n)}) for n in range(3)))
    assert ids(DatasetConfig(path=path, offset=1)) == ["dataset/bare/1", "dataset/bare/2"]


def test_filters_apply_before_offset_and_limit(jsonl: Path) -> None:
    config = DatasetConfig(path=jsonl, where={"kind": "b"}, offset=1, limit=2)
    assert ids(config) == ["dataset/set/1/4", "dataset/set/2/5"]


def test_tasks_are_held_out_by_name_or_share(jsonl: Path) -> None:
    assert ids(DatasetConfig(path=jsonl, holdout=NamedHoldout(("3_Scale", "set/1/2"))), "held_out") == [
        "dataset/set/1/2",
        "dataset/set/2/3",
    ]
    assert len(ids(DatasetConfig(path=jsonl, holdout=FractionHoldout(0.3)), "held_out")) == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"columns": Columns(reference="cod")}, "columns.reference: no column 'cod'; did you mean 'code'"),
        ({"where": {"kin": "a"}}, "where: no column 'kin'; did you mean 'kind'"),
        ({"where": {"kind": "c"}}, "no task was found"),
        ({"columns": Columns(level="name")}, "not an integer"),
    ],
)
def test_options_that_do_not_match_the_data_are_refused(jsonl: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ids(DatasetConfig(path=jsonl, **config))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"code": "x"}\n{"code": \n', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: expected an object"),
        ("a.jsonl", '{"code": 1}\n', r"a\.jsonl:1: column 'code' is not a string"),
        ("a.jsonl", '{"code": "x = 1"}\n', r"a\.jsonl:1:1: not a task"),
        ("a.jsonl", '{"text": "x"}\n', "no column 'reference' or 'code'"),
        ("a.jsonl", "", "has no rows"),
        ("a.json", "{}", "expected a list of rows"),
        ("a.parquet", "junk", "not a parquet file"),
        ("a.csv", "", r"ends in \.jsonl, \.json, \.parquet"),
    ],
)
def test_damaged_files_are_refused_with_a_position(tmp_path: Path, name: str, content: str, message: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        ids(DatasetConfig(path=path))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode), suffix=st.sampled_from([".jsonl", ".json"])
)
def test_random_bytes_are_a_usage_error(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"junk{suffix}"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        ids(DatasetConfig(path=path))


def test_a_duplicate_id_is_refused_with_both_positions(tmp_path: Path, task_source) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"id": "same", "code": task_source()}) for _ in range(2)))
    with pytest.raises(UsageError, match=r"a\.jsonl:2: task id 'dataset/a/same' is already used by .*a\.jsonl:1"):
        ids(DatasetConfig(path=path))


def test_a_hub_data_set_is_read_at_its_revision(rows, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []
    module = types.ModuleType("datasets")
    module.load_dataset = lambda name, subset, split, revision: (
        requested.append((name, subset, split, revision)) or rows
    )
    monkeypatch.setitem(sys.modules, "datasets", module)
    config = DatasetConfig(hub="someone/kernels", revision="c0ffee", subset="small", hub_split="test")
    assert ids(config)[0] == "dataset/kernels/2/1"
    assert requested == [("someone/kernels", "small", "test", "c0ffee")]
    assert DatasetTasks(config).manifest()["revision"] == "c0ffee"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "path"),
        ({"path": Path("a.jsonl"), "hub": "a/b", "revision": "c"}, "path"),
        ({"hub": "a/b"}, "revision"),
        ({"path": Path("a.jsonl"), "columns": Columns(split="s"), "holdout": FractionHoldout(0.1)}, "holdout"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], word: str) -> None:
    (problem,) = DatasetConfig(**options).problems()
    assert word in problem
