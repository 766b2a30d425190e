"""`kernelrl serve` with the evaluator of the test kit: `server_process.py SECONDS [OPTION]...`.

Each evaluation takes SECONDS and appends the hash of its candidate to `evaluated.txt`. With `None` for SECONDS, the
evaluator of the options is used.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelrl_core.api.errors import KernelRLError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest
from kernelrl_service import command, serve
from kernelrl_testing.fakes import FakeEvaluator


class _Counted(FakeEvaluator):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        with Path("evaluated.txt").open("a") as file:  # noqa: ASYNC230  # short
            file.write(f"{request.source_sha256}\n")
        found = await super().evaluate(request)
        self.requests.clear()  # else the memory of a long soak grows
        return found


def main() -> None:
    seconds = sys.argv.pop(1)
    if seconds != "None":
        real = serve.serve
        serve.serve = lambda options, say: real(options, say, _Counted(capacity=8, seconds=float(seconds)))
    try:
        command.command()
    except KernelRLError as error:
        click.echo(error, err=True)
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
