"""`kernelrl completion`: completion of commands, options and names in bash, zsh and fish."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from kernelrl_core.cli.loading import load

__all__ = ["complete_names"]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL. It completes commands, options and names, such as runs and tasks.

    \b
    Examples, each to be called once:
      echo 'source <(kernelrl completion bash)' >> ~/.bashrc
      echo 'source <(kernelrl completion zsh)' >> ~/.zshrc    # after compinit
      kernelrl completion fish > ~/.config/fish/completions/kernelrl.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "kernelrl", "_KERNELRL_COMPLETE").source())


def complete_names(found: click.Command) -> click.Command:
    """Let the parameters of a command, and of its subcommands, complete names: those of `_NAMES`.

    The name of the parameter decides, so that commands of plugins take part.
    """
    for parameter in found.params:
        list_names = _NAMES.get((parameter.name or "").removesuffix("s"))
        if list_names is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = _Name(list_names)
    if isinstance(found, click.Group):
        for name in found.list_commands(click.Context(found)):
            child = found.get_command(click.Context(found), name)
            if child is not None:
                complete_names(child)
    return found


class _Name(click.types.StringParamType):
    """Text that is mostly one of some names. A path is accepted as well."""

    def __init__(self, list_names: str) -> None:
        """
        Args:
            list_names: the function that lists the names, written `module:attribute`.
        """
        self._list_names = list_names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        is_first = not ctx.params.get(param.name or "")
        is_name = is_first or (param.name or "").removesuffix("s") != _FIRST_WORD
        names = [name for name in load(self._list_names)() if name.startswith(incomplete)] if is_name else []
        # Without a name, the shell completes files.
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


_FIRST_WORD = "task_and_kernel"
"""Parameter whose first word alone is a name; files follow."""
_PARAMETERS = ("run", "recipe", "recipe_or_run", "plugin", "kind", "task", "backend", "evaluator")
_NAMES = {
    **{name: f"kernelrl_core.cli.names:{name}" for name in _PARAMETERS},
    _FIRST_WORD: "kernelrl_core.cli.names:task",
}
"""Name of a parameter, in the singular -> the function that lists the names that it completes. Its module imports much,
which the completion of a command or an option does not need."""
