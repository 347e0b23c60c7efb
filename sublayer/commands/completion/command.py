"""``sublayer completion``: the script that completes commands in a shell, printed or installed."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.completion.scripts import SHELLS
from sublayer.commands.shared.base import JsonObject, JsonOption, emit
from sublayer.errors import ConfigError

EXAMPLE = "sublayer completion bash --install"


def command(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        typer.Argument(
            metavar="SHELL", help="bash, zsh or fish. Default: as the variable SHELL names it."
        ),
    ] = None,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="Keep the script below the home folder, and let the shell read it: ~/.bashrc or "
            "~/.zshrc takes a line, unless it has it.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the script by which a shell completes sublayer's commands, options, recipes, runs,
    fields and their choices, or install it.

    For the current shell alone: eval "$(sublayer completion bash)", of zsh likewise after compinit;
    of fish sublayer completion fish | source.
    """
    name = shell or _own_shell()
    if not install:
        emit({"shell": name, "script": SHELLS[name].script}, as_json, _script)
        return
    script, changed = _install(name)
    emit({"shell": name, "installed": str(script), "changed": changed}, as_json, _installed)


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise ConfigError(
            f"there is no completion for {name or 'this shell'}: name bash, zsh or fish"
        )
    return name


def _install(name: str) -> tuple[Path, str | None]:
    """Write a shell's script; return where it is, and the shell's own file if that was changed."""
    from sublayer.files.storage import write_file

    shell = SHELLS[name]
    script = Path.home() / shell.path
    script.parent.mkdir(parents=True, exist_ok=True)
    write_file(script, shell.script)
    if not shell.line:
        return script, None
    settings = Path.home() / shell.settings
    before = settings.read_bytes() if settings.exists() else b""
    line = shell.line.encode()
    if line in before.splitlines():
        return script, None
    # Appended, not replaced: the file may be a link to one that is kept elsewhere.
    with settings.open("ab") as file:
        file.write((b"" if before.endswith(b"\n") or not before else b"\n") + line + b"\n")
    return script, str(settings)


def _script(result: JsonObject) -> str:
    return str(result["script"]).rstrip("\n")


def _installed(result: JsonObject) -> str:
    lines = [f"completion of {result['shell']}: {result['installed']}"]
    if result["changed"]:
        lines.append(f"a line that reads it: {result['changed']}")
    lines.append(f"new shells have it: exec {result['shell']}")
    return "\n".join(lines)
