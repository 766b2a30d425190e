"""`kernelrl runs compare`: compare held-out evaluations task by task."""

from __future__ import annotations

import click


@click.command("compare", short_help="Compare held-out evaluations of runs.")
@click.argument("results", nargs=-1, required=True, metavar="RUN|FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(results: tuple[str, ...], as_json: bool) -> None:
    """Compare held-out evaluations task by task: the first with each other one.

    Each is a run, whose last held-out evaluation counts, RUN@N for the one after N steps, or a file of `kernelrl eval
    --output`, which may hold several. Differences of recipe, result and cost are printed, with 95 % intervals over the
    common tasks and the smallest detectable difference.

    \b
    Examples:
      kernelrl runs compare quickstart quickstart_raicl
      kernelrl runs compare quickstart@0 quickstart
      kernelrl runs compare before.json after.json --json
    """
    from kernelrl_core.api.commands import print_json, print_lines
    from kernelrl_core.api.errors import UsageError
    from kernelrl_core.api.results import read_results
    from kernelrl_report.compare import comparison, comparison_lines

    found = [result for name in results for result in read_results(name)]
    if len(found) < 2:
        raise UsageError(
            f"nothing to compare with {found[0].name}",
            fix="name a second run, RUN@N or file of kernelrl eval --output",
            see="evaluation-results",
        )
    document = comparison(found)
    if as_json:
        print_json(document)
    else:
        print_lines(comparison_lines(document))
