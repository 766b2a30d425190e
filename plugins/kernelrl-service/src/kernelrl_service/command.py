"""`kernelrl serve`."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

__all__ = ["command"]

_OWN_SOCKET = "-"
"""Value of `--unix` without a path."""


@click.command("serve")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--listen", default="127.0.0.1:8790", show_default=True, metavar="HOST:PORT",
              help="Address; port 0: any free port.")  # fmt: skip
@click.option("--unix", type=click.Path(path_type=Path), is_flag=False, flag_value=_OWN_SOCKET, metavar="[PATH]",
              help="Listen at this socket, for this user alone. "
              "Without PATH: at the one that `kernelrl check` looks for.")  # fmt: skip
@click.option("--evaluator", "-e", help="Evaluator component. Default: local (this machine).")
@click.option("--recipe", "-r", "recipes", multiple=True,
              help="Serve this recipe with its tasks; may be repeated.")  # fmt: skip
@click.option("--tasks", "-t", multiple=True,
              help="Serve this task source, or the task of this file; may be repeated. "
              "Default without --recipe: starter.")  # fmt: skip
@click.option("--tokens", type=click.Path(path_type=Path), help="File of tokens; every client needs one of them.")
@click.option("--add-token", metavar="NAME", help="Add a token to --tokens, print it, and exit.")
@click.option("--inline-tasks", is_flag=True,
              help="Accept sources of tasks: with --add-token from this client, "
              "else from every local client.")  # fmt: skip
@click.option("--state", type=click.Path(path_type=Path), default=Path("kernelrl-service"), show_default=True,
              help="Directory of the journal; a restarted server continues from it.")  # fmt: skip
@click.option("--queue", type=click.IntRange(min=1), help="Largest number of unfinished evaluations.")
@click.option("--queue-per-client", type=click.IntRange(min=1), help="Largest number of them per client.")
@click.option("--watch-stdin", is_flag=True, help="Exit when standard input is closed.")
def command(
    overrides: tuple[str, ...],
    listen: str,
    unix: Path | None,
    evaluator: str | None,
    recipes: tuple[str, ...],
    tasks: tuple[str, ...],
    tokens: Path | None,
    add_token: str | None,
    inline_tasks: bool,
    state: Path,
    queue: int | None,
    queue_per_client: int | None,
    watch_stdin: bool,
) -> None:
    """Serve evaluations and episodes over HTTP, until Ctrl-C or SIGTERM.

    When the server is ready, it prints one line of JSON with base_url or unix to stdout. GET /openapi.json describes
    its requests. KEY=VALUE set evaluation keys, such as evaluator.workers=4.

    \b
    Examples:
      kernelrl serve
      kernelrl serve --recipe stage1 --recipe my_recipe.yaml
      kernelrl serve --unix
      kernelrl serve --tasks kernelbench --tasks my_task.py --unix ~/.kernelrl.sock
      kernelrl serve --tokens tokens.yaml --add-token alice
      kernelrl serve --tokens tokens.yaml --listen 0.0.0.0:8790 evaluator.workers=8
    """
    from kernelrl_core.api.evaluators import SERVICE_SOCKET, lock_directory
    from kernelrl_service.options import Limits, ServeOptions
    from kernelrl_service.serve import serve
    from kernelrl_service.tokens import add_token as new_token

    if add_token is not None:
        if tokens is None:
            raise click.UsageError("--add-token needs --tokens FILE")
        click.echo(new_token(tokens, add_token, inline_tasks=inline_tasks))
        return
    if inline_tasks and tokens is not None:
        raise click.UsageError("--inline-tasks with --tokens is a permission of each token: use it with --add-token")
    host, port = _address(listen)
    if unix is not None and "=" in str(unix):
        raise click.UsageError(f"--unix {unix}: not a path; write --unix behind the keys, or --unix=PATH")
    limits = Limits()
    if queue is not None:
        limits = attrs.evolve(limits, queue=queue)
    if queue_per_client is not None:
        limits = attrs.evolve(limits, unfinished_per_client=queue_per_client)
    options = ServeOptions(
        state=state,
        host=host,
        port=port,
        unix=lock_directory() / SERVICE_SOCKET if unix == Path(_OWN_SOCKET) else unix,
        evaluator=evaluator,
        recipes=recipes,
        tasks=tasks,
        overrides=overrides,
        tokens=tokens,
        inline_tasks=inline_tasks,
        limits=limits,
        watch_stdin=watch_stdin,
    )
    serve(options, lambda line: click.echo(line, err=True))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:8790")
    return host.strip("[]") or "127.0.0.1", int(port)
