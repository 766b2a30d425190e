"""`kernelrl index`: build, inspect and query an index of worked kernels."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from kernelrl_core.api.errors import KernelRLError, UsageError

if TYPE_CHECKING:
    from kernelrl_core.api.retrievers import Retriever, Task
    from kernelrl_plugin_raicl.index.opening import Index

_OUR_FLAGS = {
    "--triton-only": ("--backend triton", True),
    "--cuda-only": ("--backend cuda", True),
    "--model": ("--embedder NAME", False),
    "--sakana-levels": ("--levels 1,2,3", False),
}
"""Flag of the published builder -> our flag, and whether it is a flag without a value."""
_SECONDS_PER_LINE = 2.0
_PROTECTED = "quickstart_raicl,kevin_raicl"

_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group("index")
def command() -> None:
    """Build, inspect and query an index of worked kernels, which retrievers search for examples.

    \b
    Examples:
      kernelrl index build --corpora starter --output my_index
      kernelrl index info my_index
      kernelrl index query my_index starter/2/softmax -k 3
    """


def _refused(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        flag = parameter.opts[0]
        raise click.UsageError(f"no option {flag}; write {_OUR_FLAGS[flag][0]}", context)


def _refuses_published_flags(function: Any) -> Any:
    for flag, (_, is_flag) in _OUR_FLAGS.items():
        option = click.option(flag, hidden=True, expose_value=False, is_flag=is_flag, callback=_refused)
        function = option(function)
    return function


@command.command("build")
@click.option("--corpora", required=True, metavar="A,B", help="Corpora, separated by commas; NAME=PATH: a local copy.")
@click.option("--output", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Directory of the index.")
@click.option("--embedder", metavar="NAME|DIR", help="Embedding model for dense search; without it, lexical only.")
@click.option("--faiss", "kind", type=click.Choice(["flat", "hnsw", "ivf"]), default="flat", show_default=True,
              help="Type of the dense index.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="Device of the embedder: cpu, cuda or cuda:N.")
@click.option("--backend", default="", metavar="NAME", help="Only kernels of this backend, such as triton.")
@click.option("--levels", default="", metavar="1,2,3", help="Only these levels, in corpora with levels.")
@click.option("--include-incorrect", is_flag=True, help="Also kernels that the corpus calls incorrect.")
@click.option("--protect", default=_PROTECTED, metavar="A,B|none", show_default=True,
              help="Recipes whose tasks the references are compared with, by their outputs.")  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace another index at DIR.")
@_as_json
@_refuses_published_flags
def build(
    corpora: str,
    output: Path,
    embedder: str | None,
    kind: Any,
    device: str,
    backend: str,
    levels: str,
    include_incorrect: bool,
    protect: str,
    replace: bool,
    as_json: bool,
) -> None:
    """Build an index. The same command continues an interrupted build.

    \b
    Examples:
      kernelrl index build --corpora starter --output my_index
      kernelrl index build --corpora kernelbook,ai_cuda_engineer --embedder BAAI/bge-code-v1 \\
        --device cuda --output kernel_rag_index
      kernelrl index build --corpora kernelbook=kernelbook.parquet --backend triton --output triton_index
    """
    from kernelrl_plugin_raicl.corpora import open_corpus, split_names
    from kernelrl_plugin_raicl.corpora.corpus import Filters
    from kernelrl_plugin_raicl.index.build import build_index

    filters = Filters(backend=backend, levels=_levels(levels), include_incorrect=include_incorrect)
    names = split_names(corpora)
    if not names:
        raise click.UsageError("--corpora names no corpus")
    opened = [open_corpus(name, filters) for name in names]
    model = None
    if embedder is not None:
        from kernelrl_plugin_raicl.index.embedder import Embedder

        click.echo(f"loading {embedder}", err=True)
        model = Embedder(embedder, device=device)
        click.echo(f"query prefix {model.prefixes.query!r}, document prefix {model.prefixes.document!r}", err=True)
    options = {"backend": backend, "levels": sorted(filters.levels), "include_incorrect": include_incorrect}
    manifest = build_index(
        opened,
        output,
        options=options,
        embedder=model,
        kind=kind,
        protected=_protected(protect),
        replace=replace,
        progress=_Progress(),
    )
    click.echo(json.dumps(manifest) if as_json else "\n".join(_described(output, manifest)))


@command.command("info")
@_directory
@click.option("--recipe", metavar="RECIPE", help="Count records that are leaks for the tasks of a recipe.")
@_as_json
def info(directory: Path, recipe: str | None, as_json: bool) -> None:
    """Verify an index and print its manifest.

    With a recipe, records are counted that contain the solution of a task of its `eval.split`, or of a training task.

    \b
    Examples:
      kernelrl index info ./kernel_rag_index
      kernelrl index info ./kernel_rag_index --recipe kevin_raicl
    """
    from kernelrl_plugin_raicl.index.opening import open_index

    index = open_index(directory)
    document: dict[str, Any] = {**index.manifest, "manifest_sha256": index.sha256}
    lines = _described(directory, index.manifest)
    if recipe is not None:
        leaks = document["leaks"] = _leaks(index, recipe)
        lines += [
            f"leaks       {leaks[key]} of {leaks['records']} records for backend {leaks['backend']} "
            f"({_share(leaks[key], leaks['records'])}) solve {text}"
            for key, text in (("held_out", f"tasks of {leaks['split']}"), ("training", "training tasks"))
        ]
    click.echo(json.dumps(document) if as_json else "\n".join(lines))


@command.command("query", short_help="Print the examples that a search finds for a task.")
@_directory
@click.argument("task")
@click.option("-k", default=3, show_default=True, type=click.IntRange(min=1), help="Number of examples.")
@click.option("--retriever", "method", type=click.Choice(["bm25", "faiss", "hybrid"]), help="Search method.")
@click.option("--backend", metavar="NAME", help="Backend of the kernels; default: that of the recipe or of the index.")
@click.option("--recipe", metavar="RECIPE", help="Recipe whose retriever options, backend and held-out tasks apply.")
@_as_json
def query(
    directory: Path,
    task: str,
    k: int,
    method: str | None,
    backend: str | None,
    recipe: str | None,
    as_json: bool,
) -> None:
    """Print the examples that a search finds for TASK, and those that the leak guard excludes.

    TASK is a task id or a file. Without a recipe, only solutions of TASK are leaks.

    \b
    Examples:
      kernelrl index query ./starter_index starter/2/softmax
      kernelrl index query ./kernel_rag_index my_task.py -k 3 --recipe kevin_raicl
    """
    from kernelrl_core.api.episodes import LeakGuard, Use, find_task, load_recipe, registry
    from kernelrl_plugin_raicl.index.opening import open_index

    loaded = load_recipe(recipe, registry=registry()).recipe if recipe is not None else None
    source = registry().make("tasks", loaded.tasks) if loaded is not None else None
    sought: Task = find_task(task, registry=registry(), source=source)
    held_out: Sequence[Task] = ()
    if loaded is not None and source is not None and loaded.eval.split in source.splits():
        held_out = source.tasks(loaded.eval.split)
    backends = open_index(directory).manifest["backends"]
    if backend is None:
        backend = loaded.backend.use.rpartition(":")[2] if loaded is not None else None
    if backend is None and len(backends) != 1:
        raise click.UsageError(f"name the backend: --backend {'|'.join(backends)}")
    backend = backend or next(iter(backends))
    use: Use | None = loaded.retriever if loaded is not None else None
    retriever = _retriever(directory, method, use.options if use is not None else None)
    guard = LeakGuard(held_out)
    shown: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    for example in retriever.search(sought, backend):
        reason = guard.leak(sought, example.reference, example.name, example.solves)
        row = attrs.asdict(example)
        if reason:
            excluded.append({**row, "reason": reason})
            continue
        shown.append(row)
        if len(shown) == k:
            break
    if as_json:
        document = {"task": sought.id, "backend": backend, "examples": shown, "excluded": excluded}
        click.echo(json.dumps(document))
        return
    lines = [_line(number, row) for number, row in enumerate(shown, start=1)]
    lines += [_line("-", row) + f"  excluded: {row['reason']}" for row in excluded]
    click.echo("\n".join(lines or [f"nothing found for backend {backend}"]))


def _protected(names: str) -> dict[str, str] | None:
    """Content hash -> reference of the held-out and training tasks of recipes; None for `none`.

    Raises:
        UsageError: a recipe that the user named is invalid, or has no tasks.
    """
    from kernelrl_core.api.episodes import load_recipe, registry

    if names == "none":
        return None
    if importlib.util.find_spec("kernelrl_judge") is None:
        click.echo("outputs are not compared: pip install 'kernelrl-plugin-raicl[behaviour]'", err=True)
        return None
    found: dict[str, str] = {}
    for name in (part.strip() for part in names.split(",") if part.strip()):
        try:
            recipe = load_recipe(name, registry=registry()).recipe
            source = registry().make("tasks", recipe.tasks)
            splits = [split for split in (recipe.eval.split, recipe.train.split) if split in source.splits()]
            found |= {task.sha256: task.reference for split in splits for task in source.tasks(split)}
        except KernelRLError as error:
            if names != _PROTECTED:
                raise
            click.echo(f"outputs are not compared with the tasks of {name}: {error}", err=True)
    return found


def _retriever(directory: Path, method: str | None, options: Any) -> Retriever:
    """The retriever of a recipe with another index, or one with default options."""
    from kernelrl_plugin_raicl import config, retrievers
    from kernelrl_plugin_raicl.index.opening import open_index

    kinds: dict[type, Any] = {
        config.Bm25Config: retrievers.Bm25,
        config.FaissConfig: retrievers.Faiss,
        config.HybridConfig: retrievers.Hybrid,
        config.ValueConfig: retrievers.Value,
    }
    if method is None and type(options) in kinds:
        found: Retriever = kinds[type(options)](attrs.evolve(options, index=directory))
        return found
    if method is None:
        method = "hybrid" if open_index(directory).has_vectors else "bm25"
    classes = {"bm25": config.Bm25Config, "faiss": config.FaissConfig, "hybrid": config.HybridConfig}
    cls = classes[method]
    chosen: Retriever = kinds[cls](cls(index=directory))
    return chosen


def _leaks(index: Index, recipe: str) -> dict[str, Any]:
    """Numbers of records that solve held-out and training tasks of a recipe."""
    from kernelrl_core.api.episodes import LeakGuard, load_recipe, registry
    from kernelrl_core.api.retrievers import Task

    loaded = load_recipe(recipe, registry=registry()).recipe
    source = registry().make("tasks", loaded.tasks)
    backend = loaded.backend.use.rpartition(":")[2]
    nothing = Task(id="", reference="")
    found: dict[str, Any] = {"backend": backend, "split": loaded.eval.split}
    rows = index.rows_of(backend)
    for key, split in (("held_out", loaded.eval.split), ("training", loaded.train.split)):
        guard = LeakGuard(source.tasks(split) if split in source.splits() else ())
        progress, known, count = _Progress(), dict[tuple[int, str], bool](), 0
        for done, row in enumerate(rows.tolist(), start=1):
            record = index.store.record(row)
            pair = (int(index.store.reference[row]), record.name)
            if pair not in known:
                solves = index.behaviour.solved_by(pair[0])
                known[pair] = guard.leak(nothing, record.reference, record.name, solves) == "leak_held_out"
            count += known[pair]
            progress(f"searching leaks of {split}", done, len(rows))
        found[key] = count
    return {**found, "records": len(rows)}


class _Progress:
    """Prints a line per phase, then at most one every two seconds, with the time left."""

    def __init__(self) -> None:
        self._phase, self._began, self._printed = "", 0.0, 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began, self._printed, self._first = phase, now, now, done
            if not done or total == 0:
                click.echo(phase if not done else f"{phase}: {done}", err=True)
            return
        if now - self._printed < _SECONDS_PER_LINE:
            return
        self._printed = now
        if not total:
            click.echo(f"{phase}: {done}", err=True)
            return
        left = (now - self._began) / max(1, done - self._first) * (total - done)
        click.echo(f"{phase}: {done} of {total} ({done / total:.0%}), {left:.0f} s left", err=True)


def _levels(text: str) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(f"--levels {text!r}: expected numbers separated by commas, such as 1,2") from None


def _described(directory: Path, manifest: dict[str, Any]) -> list[str]:
    backends = ", ".join(f"{name} {count}" for name, count in manifest["backends"].items())
    lines = [
        f"index       {directory}",
        f"records     {manifest['records']} ({backends}), {manifest['references']} different references, "
        f"{manifest['duplicates']} duplicates excluded",
    ]
    for corpus in manifest["corpora"]:
        lines.append(
            f"corpus      {corpus['name']} {corpus.get('revision', '')}, licence {corpus.get('licence') or 'unknown'}: "
            f"{corpus['records_read']} records"
        )
        for reason, count in corpus["skipped"].items():
            lines.append(f"  skipped   {count}: {reason} ({'; '.join(corpus['skipped_rows'][reason][:2])})")
    behaviour = manifest.get("behaviour")
    if behaviour is None:
        lines.append("behaviour   not compared; kernelrl index build --protect RECIPE compares outputs with its tasks")
    else:
        called, others = behaviour["references_called"], behaviour["references_not_called"]
        lines.append(
            f"behaviour   {called} of {called + others} references called, {behaviour['references_equal']} have the "
            f"outputs of one of {len(behaviour['tasks'])} tasks; {len(behaviour['tasks_not_called'])} tasks not called"
        )
        if behaviour["missing_layers"]:
            lines.append(f"  sandbox   without {', '.join(behaviour['missing_layers'])}")
    lexical, dense = manifest["lexical"], manifest["dense"]
    lines.append(f"lexical     {lexical['library']}, {lexical['vocabulary']} words")
    if dense is not None:
        lines.append(
            f"dense       {dense['embedder']}, {dense['dimension']} dimensions, {dense['type']}, "
            f"query prefix {dense['query_prefix']!r}"
        )
    return lines


def _line(rank: object, row: dict[str, Any]) -> str:
    speedup = f"{row['speedup']:.2f}x" if row["speedup"] is not None else "-"
    return f"{rank:>2}  {row['similarity']:.3f}  {speedup:>7}  {row['id']}  {row['name']}  {row['origin']}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0%"
