"""Path of one evaluation through the judge: the modules that it enters, and how often.

    python benchmarks/evaluation_trace.py [--gpu] [--json] [--before FILE]

Evaluates an example kernel on the CPU in C++, timed, and one in Triton's interpreter; with `--gpu` also one in Triton
on a GPU, recorded and timed. A first evaluation, which is not counted, starts the judge and imports its modules. Then
the judge evaluates the same kernel and task, both made distinct by a comment, with a profile function
(`sys.setprofile`) from the arrival of the request until its reply. The judge has no hook for this: `traced_judge.py`
installs the profile function and calls the judge's main function.

Traced are the packages `kernelrl_judge`, `kernelrl_build` and `kernelrl_sandbox`, in the judge process only. An entry
into a module is a call of a function of that module whose nearest caller frame that belongs to one of these packages
is in another module. Frames of libraries between the two, such as contextlib, attrs and torch, are skipped. A generator
is called when it starts and each time it is resumed. A generator-based context manager of another module therefore
counts two entries in a `with` statement: one when the block begins and one when it ends. A resumption from within the
module of the generator is no entry. The arrival of the request counts as an entry into the module that reads it. The
execution of a module's body, and constructors that attrs generates, are no entries. A timed evaluation on the CPU has
more or fewer calls of the reference from one execution to the next, and with them entries below `judge/`.

Prints tables; with `--json` one JSON document with the entries of every module by the module that they came from.
`--before` names the document of an earlier revision, whose figures are shown beside these and kept in the document.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
from provenance import provenance

from kernelrl_core.api.components import Use, registry
from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Outcome
from kernelrl_core.types.numbers import PositiveInt
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_testing.values import make_request

JUDGE_PROGRAM = ("-m", "kernelrl_judge.judge.main")
TRACED_JUDGE = Path(__file__).with_name("traced_judge.py")
SUBJECT = "kernelrl_judge.judge."
TOP = 10

Entries = dict[str, dict[str, int]]
"""Module -> module that it was entered from -> entries."""


@attrs.frozen
class Case:
    """An evaluation to trace."""

    name: str
    backend: str
    timed: bool
    options: dict[str, Any] = attrs.field(factory=dict)


ON_CPU = (
    Case("C++ on the CPU, timed", "cpp", timed=True),
    Case("Triton in the interpreter", "triton", timed=False, options={"mode": "interpreter"}),
)
ON_GPU = (Case("Triton on a GPU, recorded and timed", "triton", timed=True),)


def request(case: Case, number: int) -> EvaluationRequest:
    example = importlib.import_module(f"kernelrl_plugin_{case.backend}.examples").ONE_SHOT
    config = registry().config_class("backends", case.backend)
    backend = registry().make("backends", Use(case.backend, config() if config is not None else None))
    kernel = f"{example.kernel}# {number}\n"
    return make_request(
        kernel,
        f"{example.reference}# {number}\n",
        case.backend,
        backend_options=case.options,
        settings=EvaluationSettings(timing=case.timed),
        seed=f"{number:032x}",
        # Required by the probe that disables kernels.
        kernels=tuple(fact.name for fact in backend.source_facts(kernel).kernels),
    )


def require_expected(case: Case, evaluation: Evaluation) -> None:
    """Reject an evaluation that took another path than the case names."""
    recorded = all(finding.rule != "not_recorded" for finding in evaluation.findings)
    if evaluation.outcome is not Outcome.CORRECT or case.timed != (evaluation.runtime is not None) or not recorded:
        rules = [finding.rule for finding in evaluation.findings]
        sys.exit(f"{case.name}: {evaluation.outcome.value}: {evaluation.message} {evaluation.not_timed} {rules}")


async def trace(case: Case, output: Path) -> Entries:
    """Entries of the second evaluation of a judge.

    Args:
        output: file to which the judge appends the entries of each request.
    """
    start = asyncio.create_subprocess_exec
    judges = 0

    async def start_traced(program: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
        nonlocal judges
        # The last argument is the judge's channel to this process.
        if arguments[-3:-1] == JUDGE_PROGRAM:
            judges += 1
            arguments = (*arguments[:-3], str(TRACED_JUDGE), str(output), arguments[-1])
        return await start(program, *arguments, **options)

    with mock.patch.object(asyncio, "create_subprocess_exec", start_traced):
        evaluator = LocalEvaluator(LocalConfig(workers=PositiveInt(1), gpu_workers=PositiveInt(1)))
        try:
            for number in range(2):
                require_expected(case, await evaluator.evaluate(request(case, number)))
        finally:
            await evaluator.aclose()
    lines = output.read_text().splitlines()
    if (judges, len(lines)) != (1, 2):
        sys.exit(f"{case.name}: {judges} judges started and {len(lines)} requests traced instead of 1 and 2")
    entries: Entries = json.loads(lines[-1])
    return entries


def measured(cases: tuple[Case, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            entered_from = asyncio.run(trace(case, Path(folder, "entries.jsonl")))
        entries = {module: sum(callers.values()) for module, callers in entered_from.items()}
        found[case.name] = {
            "modules": len(entries),
            "entries": sum(entries.values()),
            "entries_into_judge": sum(count for name, count in entries.items() if name.startswith(SUBJECT)),
            "judge_entries": {name: count for name, count in sorted(entries.items()) if name.startswith(SUBJECT)},
            "most_entered": dict(sorted(entries.items(), key=lambda item: -item[1])[:TOP]),
            "entered_from": dict(sorted(entered_from.items())),
        }
    return found


def tables(cases: dict[str, Any], before: dict[str, Any] | None) -> Iterator[str]:
    """Lines that show the figures of each case, beside the earlier ones where there are any."""
    for name, now in cases.items():
        columns = [now] if before is None else [before.get(name, {}), now]
        yield ""
        yield f"{name:<64}" + ("" if before is None else f"{'before':>8}{'after':>8}")
        for title, key in (
            ("modules entered", "modules"),
            ("entries", "entries"),
            ("entries into modules of judge/", "entries_into_judge"),
        ):
            yield row(title, [column.get(key) for column in columns])
        for title, key in (("modules of judge/", "judge_entries"), ("most entered", "most_entered")):
            yield f"  {title}"
            counts = [column.get(key, {}) for column in columns]
            modules = dict.fromkeys(module for count in reversed(counts) for module in count)
            for module in modules:
                yield row(f"  {module}", [all_entries(column, module) for column in columns])


def row(title: str, counts: list[int | None]) -> str:
    return f"  {title:<62}" + "".join(f"{'–' if count is None else count:>8}" for count in counts)


def all_entries(case: dict[str, Any], module: str) -> int | None:
    """Entries into a module; None if there are none."""
    callers = case.get("entered_from", {}).get(module)
    return None if callers is None else sum(callers.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--before", type=Path, metavar="FILE")
    given = parser.parse_args()
    document: dict[str, Any] = {"benchmark": "evaluation_trace", "provenance": provenance("attrs", "torch", "triton")}
    if given.gpu:
        document["gpu"] = gpu()
    document["cases"] = measured((*ON_CPU, *ON_GPU) if given.gpu else ON_CPU)
    before = json.loads(given.before.read_text()) if given.before else None
    if before is not None:
        document["before"] = before
    if given.json:
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        print("\n".join(tables(document["cases"], before and before["cases"])))


def gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
