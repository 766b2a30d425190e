"""`kernelrl lab`: measure an evaluator with known hacks and honest kernels."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kernelrl_lab.fixture import Fixture
    from kernelrl_lab.running import Report, Result


@click.command("lab")
@click.option("--evaluator", "-e", default="local", show_default=True, help="The evaluator that is measured.")
@click.option("--only", multiple=True, metavar="ID", help="Fixture or row of the taxonomy; may be repeated.")
@click.option("--gpu", is_flag=True, help="The fixtures that need a GPU, instead of those for the processor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, evaluator: str, only: tuple[str, ...], gpu: bool, as_json: bool) -> None:
    """Judge known hacks and honest kernels.

    A hack passes when it does not pay: it ends other than correct and clean, or its time is the true one. An honest
    kernel passes when it is correct and clean. Exit code 0 when all pass.

    \b
    Examples:
      kernelrl lab
      kernelrl lab --only C2 --only K9-cpp --json
    """
    from kernelrl_core.api.episodes import registry
    from kernelrl_lab.running import run

    fixtures = _chosen(only, "gpu" if gpu else "cpu")
    ended = itertools.count(1)

    def tell(result: Result) -> None:
        click.echo(f"{next(ended)} of {len(fixtures)}: {_line(result, 0)}", err=True)

    click.echo(f"{len(fixtures)} fixtures; their tasks are audited first", err=True)
    report = run(fixtures, registry=registry(), evaluator=evaluator, on_result=tell)
    click.echo(json.dumps(_described(report)) if as_json else "\n".join(_lines(report)))
    context.exit(0 if report.passed else 1)


def _chosen(only: tuple[str, ...], where: str) -> list[Fixture]:
    from kernelrl_core.api.errors import LookupFailed, suggestion
    from kernelrl_lab.catalogue import FIXTURES

    here = [fixture for fixture in FIXTURES if fixture.where == where]
    names = {fixture.id for fixture in here} | {fixture.row for fixture in here}
    for name in only:
        if name not in names:
            raise LookupFailed(f"no fixture {name!r} for the {where}; {suggestion(name, names)}", fix="kernelrl lab")
    return [fixture for fixture in here if not only or fixture.id in only or fixture.row in only]


def _described(report: Report) -> dict[str, Any]:
    return {
        "fixtures": [
            {
                "id": result.fixture.id,
                "summary": result.fixture.summary,
                "expected": result.fixture.expected,
                "outcome": result.outcome.value,
                "verdict": result.verdict.value,
                "speedup": result.speedup,
                "passed": result.passed,
                "findings": list(result.findings),
                "quarantine": list(result.quarantine),
                "message": result.message,
            }
            for result in report.results
        ],
        "recall": report.recall,
        "precision": report.precision,
        "accepted": report.accepted,
    }


def _lines(report: Report) -> list[str]:
    width = max((len(result.fixture.id) for result in report.results), default=0)
    lines = [f"{'fixture':<{width}}  {'expected':<12} {'outcome':<14} {'verdict':<8} {'speedup':>8}       findings"]
    lines += [_line(result, width) for result in report.results]
    hacks = [result for result in report.results if not result.fixture.clean]
    honest = [result for result in report.results if result.fixture.clean]
    lines.append(f"hacks detected             {sum(r.passed for r in hacks)} of {len(hacks)}")
    lines.append(f"honest kernels accepted    {sum(r.passed for r in honest)} of {len(honest)}")
    if report.recall is not None:
        lines.append(f"recall                     {report.recall:.3f}")
    if report.precision is not None:
        lines.append(f"precision                  {report.precision:.3f}")
    return lines


def _line(result: Result, width: int) -> str:
    speedup = "" if result.speedup is None else f"{result.speedup:.2f}"
    return (
        f"{result.fixture.id:<{width}}  {result.fixture.expected:<12} {result.outcome.value:<14} "
        f"{result.verdict.value:<8} {speedup:>8}  {'pass' if result.passed else 'FAIL'} "
        f"{', '.join((*result.findings, *(f'{flag} (quarantine)' for flag in result.quarantine)))}"
    ).rstrip()
