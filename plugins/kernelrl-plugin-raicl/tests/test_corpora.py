"""The table of corpora: names, columns, local copies, the hub, and excluded rows."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.errors import InfrastructureError, LookupFailed, UsageError
from kernelrl_plugin_raicl.corpora import Corpus, open_corpus, split_names
from kernelrl_plugin_raicl.corpora.corpus import Filters
from kernelrl_plugin_raicl.corpora.published import PUBLISHED
from kernelrl_plugin_raicl.record import Record, Skipped

Rows = list[dict[str, Any]]
Writer = Callable[[Path, Rows], Path]


def _sample_rows(corpus: str) -> Rows:
    path = Path(__file__).parent / "samples/rows.py"
    spec = importlib.util.spec_from_file_location("raicl_corpus_rows", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found: Rows = module.rows(corpus)
    return found


KERNELBOOK = _sample_rows("kernelbook")[:6]
ARCHIVE = _sample_rows("ai_cuda_engineer")[:6]
OWN = {"reference": "class Model: pass", "kernel": "class ModelNew: pass", "backend": "triton"}


def jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: Rows) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def arrow_stream(path: Path, rows: Rows) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def arrow_file(path: Path, rows: Rows) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def saved_dataset(path: Path, rows: Rows) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


def parts(corpus: Corpus) -> tuple[list[Record], list[Skipped]]:
    found = list(corpus.records())
    return [item for item in found if isinstance(item, Record)], [item for item in found if isinstance(item, Skipped)]


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("rows.jsonl", jsonl),
        ("rows.parquet", parquet),
        ("stream.arrow", arrow_stream),
        ("file.arrow", arrow_file),
        ("saved", saved_dataset),
    ],
)
@pytest.mark.parametrize(("corpus", "rows"), [("kernelbook", KERNELBOOK), ("ai_cuda_engineer", ARCHIVE)])
def test_local_copies_give_equal_records_in_every_format(
    tmp_path: Path, corpus: str, rows: Rows, name: str, writer: Writer
) -> None:
    expected = [
        attrs_without_origin(item) for item in parts(open_corpus(f"{corpus}={jsonl(tmp_path / 'a.jsonl', rows)}"))[0]
    ]
    records, skipped = parts(open_corpus(f"{corpus}={writer(tmp_path / name, rows)}"))
    assert [attrs_without_origin(item) for item in records] == expected
    assert (len(records), skipped) == (len(rows), [])


def attrs_without_origin(record: Record) -> tuple[Any, ...]:
    return (record.id, record.reference, record.kernel, record.backend, record.name, record.level, record.speedup)


def test_a_directory_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    jsonl(tmp_path / "b.jsonl", KERNELBOOK[:1])
    (tmp_path / "a").mkdir()
    jsonl(tmp_path / "a" / "x.jsonl", KERNELBOOK[1:2])
    records, _ = parts(open_corpus(f"kernelbook={tmp_path}"))
    assert [item.name for item in records] == [KERNELBOOK[1]["entry_point"], KERNELBOOK[0]["entry_point"]]


def test_records_of_kernelbook_have_their_licence_and_no_level(tmp_path: Path) -> None:
    rows = [KERNELBOOK[0], {**KERNELBOOK[1], "licenses": None}]
    first, second = parts(open_corpus(f"kernelbook={jsonl(tmp_path / 'a.jsonl', rows)}"))[0]
    assert (first.id, first.backend, first.level, first.speedup) == ("kernelbook/0", "triton", None, None)
    assert (first.licence, second.licence) == ("Apache-2.0", "MIT")
    assert first.origin.startswith("kernelbook@sha256:")


def test_records_of_the_archive_have_level_number_and_speedup(tmp_path: Path) -> None:
    (record, *_), _ = parts(open_corpus(f"ai_cuda_engineer={jsonl(tmp_path / 'a.jsonl', ARCHIVE)}"))
    row = ARCHIVE[0]
    operation = row["Op_Name"].partition("_")[2]
    assert record.name == f"level_{row['Level_ID']}/{row['Task_ID']}_{operation}"
    assert record.id == f"ai_cuda_engineer/{row['Level_ID']}/{row['Task_ID']}/{row['Kernel_Name']}"
    assert (record.level, record.speedup, record.backend) == (row["Level_ID"], row["CUDA_Speedup_Native"], "cuda")
    assert record.licence == "CC-BY-4.0"


def test_incorrect_kernels_of_the_archive_are_counted_unless_wanted(tmp_path: Path) -> None:
    rows = [ARCHIVE[0], {**ARCHIVE[1], "Correct": False, "CUDA_Speedup_Native": float("nan")}]
    name = f"ai_cuda_engineer={jsonl(tmp_path / 'a.jsonl', rows)}"
    records, skipped = parts(open_corpus(name))
    assert [item.correct for item in records] == [True]
    assert [item.reason for item in skipped] == ["the corpus calls the kernel incorrect"]
    records, skipped = parts(open_corpus(name, Filters(include_incorrect=True)))
    assert [(item.correct, item.speedup is None) for item in records] == [(True, False), (False, True)]
    assert skipped == []


def test_kernels_of_other_levels_and_backends_are_not_read(tmp_path: Path) -> None:
    rows = [{**ARCHIVE[0], "Level_ID": 1}, {**ARCHIVE[1], "Level_ID": 3}]
    name = f"ai_cuda_engineer={jsonl(tmp_path / 'a.jsonl', rows)}"
    assert [item.level for item in parts(open_corpus(name, Filters(levels=frozenset({3}))))[0]] == [3]
    assert parts(open_corpus(name, Filters(backend="triton"))) == ([], [])


def test_two_kernels_with_the_same_name_have_different_ids(tmp_path: Path) -> None:
    records, _ = parts(open_corpus(f"ai_cuda_engineer={jsonl(tmp_path / 'a.jsonl', [ARCHIVE[0], ARCHIVE[0]])}"))
    assert [item.id.endswith("#2") for item in records] == [False, True]


@pytest.mark.parametrize("corpus", ["kernelbook", "ai_cuda_engineer"])
def test_a_missing_column_is_an_error_that_names_it(tmp_path: Path, corpus: str) -> None:
    rows = KERNELBOOK if corpus == "kernelbook" else ARCHIVE
    for column in PUBLISHED[corpus].columns:
        path = jsonl(tmp_path / "a.jsonl", [{key: value for key, value in rows[0].items() if key != column}])
        with pytest.raises(UsageError, match=f"has no column '{column}'"):
            parts(open_corpus(f"{corpus}={path}"))


def test_broken_rows_are_counted_with_their_place_and_reason(tmp_path: Path) -> None:
    good = json.dumps(KERNELBOOK[0])
    rows: Rows = [
        {**KERNELBOOK[0], "triton_code": None},
        {**KERNELBOOK[0], "python_code": "def ("},
        {**KERNELBOOK[0], "python_code": "x" * 50_001},
        {key: value for key, value in KERNELBOOK[0].items() if key != "entry_point"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([good, "{not json", "[1]", *map(json.dumps, rows), "", good]), encoding="utf-8")
    records, skipped = parts(open_corpus(f"kernelbook={path}"))
    assert [item.id for item in records] == ["kernelbook/0", "kernelbook/7"]
    assert [(item.id, item.reason) for item in skipped] == [
        ("kernelbook/1", "row is broken"),
        ("kernelbook/2", "row is broken"),
        ("kernelbook/3", "row without a source"),
        ("kernelbook/4", "reference is not Python"),
        ("kernelbook/5", "source longer than 50,000 characters"),
        ("kernelbook/6", "row lacks a column"),
    ]
    assert skipped[0].detail.startswith("line 2: not JSON")


def test_no_damage_of_a_row_stops_the_corpus(tmp_path: Path) -> None:
    rows: Rows = []
    for row in KERNELBOOK[:2]:
        lines = row["triton_code"].splitlines()
        rows += [{**row, "triton_code": "\n".join([*lines[:at], *lines[at + 1 :]])} for at in range(len(lines))]
        rows += [{**row, "triton_code": row["triton_code"][:end]} for end in range(0, len(row["triton_code"]), 97)]
    records, skipped = parts(open_corpus(f"kernelbook={jsonl(tmp_path / 'a.jsonl', [KERNELBOOK[0], *rows])}"))
    assert len(records) + len(skipped) == len(rows) + 1
    assert Counter(item.reason for item in skipped)["sources in a form that is not known"] < len(rows) / 20


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"no table")
    with pytest.raises(UsageError, match=name):
        parts(open_corpus(f"kernelbook={tmp_path / name}"))


@pytest.mark.parametrize("name", ["missing", "rows.csv", "empty"])
def test_a_local_copy_that_is_no_table_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.csv").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=name):
        open_corpus(f"kernelbook={tmp_path / name}")


def test_an_unknown_corpus_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(LookupFailed, match="did you mean 'kernelbook'"):
        open_corpus("kernelbok")


def test_only_published_corpora_have_local_copies() -> None:
    with pytest.raises(UsageError, match="local copies"):
        open_corpus("starter=here")


@pytest.mark.parametrize("corpus", PUBLISHED)
def test_an_unreachable_hub_is_an_error_with_the_command_for_a_local_copy(
    corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    datasets = pytest.importorskip("datasets")

    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(hub.HfApi, "dataset_info", fail)
    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(InfrastructureError, match="no route to the hub") as caught:
        parts(open_corpus(corpus))
    assert f"hf download {PUBLISHED[corpus].hub}" in caught.value.fix
    assert f"--corpora {corpus}=DIR" in caught.value.fix


def test_the_pinned_revision_is_loaded_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    loaded: list[Any] = []

    def load(name: str, config: str | None, *, split: str, revision: str) -> Rows:
        loaded.append((name, config, split, revision))
        return KERNELBOOK

    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = open_corpus("kernelbook")
    records, _ = parts(corpus)
    facts = PUBLISHED["kernelbook"]
    assert loaded == [(facts.hub, None, "train", facts.revision)]
    assert records[0].origin == f"kernelbook@{facts.revision[:15]}"
    assert corpus.manifest() == {
        "name": "kernelbook",
        "revision": facts.revision,
        "licence": "MIT",
        "source": "GPUMODE/KernelBook",
    }


def test_a_branch_is_resolved_to_its_commit_and_only_wanted_levels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    datasets = pytest.importorskip("datasets")
    loaded: list[Any] = []

    class Info:
        sha = "c" * 40

    def load(name: str, config: str | None, *, split: str, revision: str) -> Rows:
        loaded.append((split, revision))
        return [{**row, "Level_ID": 2} for row in ARCHIVE]

    monkeypatch.setattr(hub.HfApi, "dataset_info", lambda self, name, revision: Info())
    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = open_corpus("ai_cuda_engineer@main", Filters(levels=frozenset({2})))
    assert len(parts(corpus)[0]) == len(ARCHIVE)
    assert loaded == [("level_2", "c" * 40)]
    assert corpus.manifest()["revision"] == "c" * 40


def test_submissions_are_joined_with_the_references_of_their_problems(tmp_path: Path) -> None:
    reference = (
        "import torch\nfrom task import input_t\n\n\ndef ref_kernel(data: input_t):\n    return data[0] + data[1]\n\n\n"
        "def generate_input(n: int, seed: int):\n    torch.manual_seed(seed)\n    return torch.rand(n), torch.rand(n)\n"
    )
    hip = "load_inline(name='a', cuda_sources='__global__ void k() {}')"
    code = f"from torch.utils.cpp_extension import load_inline\nmodule = {hip}\n"
    code += "\n\ndef custom_kernel(data):\n    return module.run(*data)\n"
    task = json.dumps({"files": {"reference.py": reference}, "tests": [{"n": 64, "seed": 3}]})
    jsonl(
        tmp_path / "leaderboards.jsonl", [{"id": 1, "name": "sum", "task": task}, {"id": 2, "name": "x", "task": "{}"}]
    )
    rows: Rows = [
        {"submission_id": 10, "leaderboard_id": 1, "code": code, "run_passed": True},
        {"submission_id": 11, "leaderboard_id": 1, "code": code, "run_passed": False},
        {"submission_id": 12, "leaderboard_id": 2, "code": code, "run_passed": True},
        {"submission_id": 13, "leaderboard_id": 1, "code": code.replace(hip, "None"), "run_passed": True},
    ]
    jsonl(tmp_path / "successful_submissions.jsonl", rows)
    (record,), skipped = parts(open_corpus(f"kernelbot={tmp_path}"))
    assert (record.id, record.backend, record.name) == ("kernelbot/10", "hip", "sum")
    assert "generate_input(n=64, seed=" in record.reference
    assert [item.reason for item in skipped] == [
        "the corpus calls the kernel incorrect",
        "problem without a reference",
        "no kernel of a known language",
    ]


def test_only_correct_demonstrations_of_a_task_source_are_records() -> None:
    records, skipped = parts(open_corpus("starter", Filters(backend="triton")))
    assert skipped == []
    assert {item.backend for item in records} == {"triton"}
    assert all(item.name.startswith("starter/") and item.correct for item in records)
    assert len({item.id for item in records}) == len(records)
    assert records == parts(open_corpus("tasks:starter", Filters(backend="triton")))[0]
    assert open_corpus("starter").manifest()["licence"] == "Apache-2.0"


def test_an_unknown_task_source_is_an_error() -> None:
    with pytest.raises(UsageError, match="startr"):
        open_corpus("tasks:startr")


def test_own_rows_need_sources_and_a_backend(tmp_path: Path) -> None:
    rows: Rows = [
        {**OWN, "id": "a", "name": "add", "level": 1, "speedup": 1.5, "licence": "MIT"},
        {**OWN, "reference": "class Other: pass"},
        {**OWN, "kernel": "def ("},
        {**OWN, "backend": ""},
        {**OWN, "level": "one"},
        {**OWN, "correct": False},
        {**OWN, "level": 2},
    ]
    name = str(jsonl(tmp_path / "own.jsonl", rows))
    records, skipped = parts(open_corpus(name, Filters(levels=frozenset({1}))))
    assert [(item.id, item.speedup, item.licence) for item in records] == [("a", 1.5, "MIT")]
    assert [item.reason for item in skipped] == [
        "reference does not define Model",
        "kernel does not define ModelNew",
        "row without a backend",
        "field of a wrong type",
        "the corpus calls the kernel incorrect",
    ]


def test_commas_separate_corpora_and_the_runs_of_one_corpus() -> None:
    text = "kernelbook=a,runs:one, two,starter,mine.jsonl,tasks:kernelbench,ai_cuda_engineer@main"
    names = ["kernelbook=a", "runs:one,two", "starter", "mine.jsonl", "tasks:kernelbench", "ai_cuda_engineer@main"]
    assert split_names(text) == names


@pytest.mark.slow
def test_best_samples_of_a_run_become_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = {item.name: item for item in parts(open_corpus("starter", Filters(backend="triton")))[0]}
    replies = [{"when": item.reference.strip(), "reply": f"```python\n{item.kernel}```"} for item in bundled.values()]
    jsonl(tmp_path / "replies.jsonl", replies)
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "run", "quickstart"]
    options = [
        "policy={use: scripted, path: replies.jsonl}",
        "train.steps=1",
        "train.tasks_per_step=2",
        "eval=null",
        "sampling.max_tokens=8000",
    ]
    command += ["--name", "one", *options, "train.group_size=2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    records, skipped = parts(open_corpus("runs:one"))
    assert skipped == []
    assert 1 <= len(records) <= 2
    for item in records:
        assert item.kernel.strip() == bundled[item.name].kernel.strip()
        assert (item.reference, item.backend, item.origin) == (bundled[item.name].reference, "triton", "runs:one")


def test_a_missing_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="nowhere"):
        open_corpus("runs:nowhere")
