"""The command `slow-turns`."""

import click


@click.command("slow-turns")
@click.argument("run")
@click.option("--count", default=5, show_default=True, help="Number of turns.")
def command(run: str, count: int) -> None:
    """List the turns of RUN whose evaluation took longest.

    \b
    Example:
      kernelrl slow-turns runs/quickstart --count 3
    """
    from kernelrl_core.api.runs import find_run

    rows = sorted(find_run(run).rows("samples"), key=lambda row: row["seconds"].get("evaluate", 0.0), reverse=True)
    for row in rows[:count]:
        click.echo(f"{row['seconds'].get('evaluate', 0.0):8.2f} s  {row['sample']}  {row['outcome']}")
