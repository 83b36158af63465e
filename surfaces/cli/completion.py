"""``callboard completion``: the script that completes commands in a shell."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import document


@click.command(epilog=exits.EXIT_CODES)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `callboard` in a shell.

    \b
    bash  eval "$(callboard completion bash)"        in ~/.bashrc
    zsh   eval "$(callboard completion zsh)"         in ~/.zshrc
    fish  callboard completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows the shells that the argument allows"
    document(found(ctx.find_root().command, {}, "callboard", "_CALLBOARD_COMPLETE").source())
