"""Find a corpus by the name that `kernelrl index build --corpora` takes."""

from __future__ import annotations

from pathlib import Path

from kernelrl_core.api.errors import LookupFailed, UsageError, suggestion
from kernelrl_plugin_raicl.corpora.corpus import Corpus, Filters
from kernelrl_plugin_raicl.corpora.own import FileCorpus, RunsCorpus, TasksCorpus
from kernelrl_plugin_raicl.corpora.published import PUBLISHED, PublishedCorpus
from kernelrl_plugin_raicl.corpora.tables import SUFFIXES

__all__ = ["corpus_names", "open_corpus", "split_names"]

_STARTER = "starter"
_TASKS, _RUNS = "tasks:", "runs:"


def corpus_names() -> tuple[str, ...]:
    """Names of the table of corpora, with their arguments."""
    return (*PUBLISHED, _STARTER, f"{_TASKS}SOURCE", f"{_RUNS}RUN,…", "PATH.jsonl")


def split_names(text: str) -> list[str]:
    """Items of `--corpora A,B`. Runs after `runs:` are themselves separated by commas."""
    found: list[str] = []
    for part in (item.strip() for item in text.split(",")):
        if part and found and found[-1].startswith(_RUNS) and not _is_corpus(part):
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found


def open_corpus(name: str, filters: Filters | None = None) -> Corpus:
    """The corpus called `name`.

    Args:
        name: a published corpus, also as `NAME@REVISION`, or `NAME=PATH` for a local copy; `starter`, `tasks:SOURCE`
            or `runs:RUN,…`; or a file in our own format.
        filters: rows to read; None: all correct ones.

    Raises:
        LookupFailed: unknown corpus.
        UsageError: missing file or run, or a revision for a corpus without revisions.
        MissingPrerequisite: a package is missing.
        InfrastructureError: the hub cannot be reached; the fix is the command that takes a local copy.
    """
    filters = filters or Filters()
    key, _, path = name.partition("=")
    if key in PUBLISHED and path:
        return PublishedCorpus(key, filters, Path(path).expanduser())
    key, _, revision = name.partition("@")
    if key in PUBLISHED:
        return PublishedCorpus(key, filters, revision=revision)
    if name == _STARTER:
        name = _TASKS + _STARTER
    if name.startswith(_TASKS):
        return TasksCorpus(name.removeprefix(_TASKS), filters)
    if name.startswith(_RUNS):
        return RunsCorpus([run for run in name.removeprefix(_RUNS).split(",") if run], filters)
    if name.endswith(SUFFIXES) or Path(name).is_dir():
        return FileCorpus(Path(name).expanduser(), filters)
    if path:
        raise UsageError(f"only published corpora have local copies: {', '.join(PUBLISHED)}; got {name!r}")
    names = (*PUBLISHED, _STARTER, _TASKS, _RUNS)
    raise LookupFailed(f"no corpus {name!r}; {suggestion(name, names)}; corpora: {', '.join(corpus_names())}")


def _is_corpus(name: str) -> bool:
    key = name.partition("=")[0].partition("@")[0]
    return key in (*PUBLISHED, _STARTER) or name.startswith((_TASKS, _RUNS)) or name.endswith(SUFFIXES)
