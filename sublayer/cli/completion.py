"""``sublayer completion``: the script that completes commands in a shell, printed or installed.

A shell runs the program with ``_SUBLAYER_COMPLETE`` set to its name. Bash hands over the line, the
cursor and its word breaks, in ``COMP_LINE``, ``COMP_POINT`` and ``COMP_WORDBREAKS``; zsh and fish
the words up to the cursor as arguments, the last of them unfinished.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer.completion import shell_completion  # type: ignore[attr-defined]
from typer.core import TyperGroup

from sublayer.cli.build import Json, client_of, emit
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option

EXAMPLE = "sublayer completion bash --install"

_BASH = """\
_sublayer_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $(env _SUBLAYER_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" \\
        COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null) )
}
complete -o default -o nospace -F _sublayer_completion sublayer
"""
_ZSH = """\
#compdef sublayer
_sublayer() {
    local reply value
    local -a unfinished finished
    for reply in "${(@f)$(_SUBLAYER_COMPLETE=zsh ${(Q)words[1]} "${(@Q)words[2,CURRENT-1]}" \\
        "${(Q)PREFIX}" 2>/dev/null)}"; do
        [[ -n $reply ]] || continue
        value=${${reply%%$'\\t'*}//:/\\\\:}
        if [[ $value == *= ]]; then
            unfinished+=("$value:${reply#*$'\\t'}")
        else
            finished+=("$value:${reply#*$'\\t'}")
        fi
    done
    (( $#unfinished )) && _describe -t fields field unfinished -S ''
    (( $#finished )) && _describe -t words word finished
    if (( ! $#unfinished && ! $#finished )); then
        compset -P '*='
        _files
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _sublayer "$@"
else
    compdef _sublayer sublayer
fi
"""
_FISH = """\
function __sublayer_completion
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l replies (env _SUBLAYER_COMPLETE=fish $words "$token" 2>/dev/null)
    if test (count $replies) -gt 0
        printf '%s\\n' $replies
    else
        set -l parts (string match -r '^([^=]*=)?(.*)' -- "$token")
        for file in (__fish_complete_path "$parts[3]")
            printf '%s%s\\n' "$parts[2]" $file
        end
    end
end
complete --command sublayer --no-files --arguments '(__sublayer_completion)'
"""


@dataclass(frozen=True)
class Shell:
    """A shell's script, where it is installed, and the line by which the shell finds it there."""

    script: str
    path: str
    """Below the home folder."""
    settings: str = ""
    """The shell's own file, below the home folder, which takes ``line``; empty: none does."""
    line: str = ""


SHELLS = {
    "bash": Shell(
        _BASH, ".bash_completions/sublayer.sh", ".bashrc", "source ~/.bash_completions/sublayer.sh"
    ),
    "zsh": Shell(
        _ZSH, ".zfunc/_sublayer", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"
    ),
    "fish": Shell(_FISH, ".config/fish/completions/sublayer.fish"),
}


@client_of()
def command(
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None,
        Argument("bash, zsh or fish. Default: as the variable SHELL names it.", metavar="SHELL"),
    ] = None,
    install: Annotated[
        bool,
        Option(
            "Keep the script below the home folder, and let the shell read it: ~/.bashrc or "
            "~/.zshrc takes a line, unless it has it."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the script by which a shell completes sublayer's commands, options, recipes, runs,
    fields and their choices, or install it.

    For the current shell alone: eval "$(sublayer completion bash)", of zsh likewise after compinit;
    of fish sublayer completion fish | source.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise ConfigError(
            f"there is no completion for {name or 'this shell'}: name bash, zsh or fish"
        )
    if not install:
        script = SHELLS[name].script
        emit({"shell": name, "script": script}, as_json, lambda _: script.rstrip("\n"))
        return
    file, changed = _install(SHELLS[name])
    lines = [f"completion of {name}: {file}"]
    if changed:
        lines.append(f"a line that reads it: {changed}")
    lines.append(f"new shells have it: exec {name}")
    installed = {"shell": name, "installed": str(file), "changed": changed}
    emit(installed, as_json, lambda _: "\n".join(lines))


def _install(shell: Shell) -> tuple[Path, str | None]:
    """Write a shell's script; return its file, and the shell's own file if that was changed."""
    from sublayer.files.storage import write_file

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


def answer(shell: str, given: Sequence[str], load: Callable[[str], TyperGroup]) -> str:
    """Return the lines that a shell's script reads, empty where it shall offer files.

    ``given`` are the program's arguments, ``load`` returns all commands, the named one with its
    options. A word that ends with ``=`` continues, others end there.
    """
    words = _words_of_bash() if shell == "bash" else given or [""]
    wanted = next((word for word in words[:-1] if not word.startswith("-")), "")
    return (BashCompletion if shell == "bash" else Completion)(load(wanted), words).complete()


def _words_of_bash() -> list[str]:
    """Return the words before the cursor, without the program, the last one unfinished."""
    line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]
    _, *words = shell_completion.split_arg_string(os.fsdecode(line))
    return words if words and not line[-1:].isspace() else [*words, ""]


class Completion(shell_completion.ShellComplete):
    """The completions of zsh and fish: whole words, each with its description."""

    def __init__(self, group: TyperGroup, words: Sequence[str]) -> None:
        super().__init__(group, {}, "sublayer", "")
        *self.words, self.start = words

    def source_vars(self) -> dict[str, Any]:
        """Return nothing: the scripts have no variables."""
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the unfinished one, and that."""
        return [*self.words], self.start

    def format_completion(self, item: Any) -> str:
        """Return a word and its description, which a tab divides."""
        return f"{self.whole(item)}\t{' '.join((item.help or '').split())}"

    def whole(self, item: Any) -> str:
        """Return the whole word: of ``--split=te`` the option, too."""
        option, equals, _ = self.start.partition("=")
        return f"{option}={item.value}" if equals and option.startswith("-") else str(item.value)


class BashCompletion(Completion):
    """The completions of bash, which replaces a word behind its last break."""

    def format_completion(self, item: Any) -> str:
        """Return the part of a word that bash replaces, with a blank where the word ends."""
        breaks = [mark for mark in "=:" if mark in os.environ.get("COMP_WORDBREAKS", "=:")]
        done = max((self.start.rfind(mark) + 1 for mark in breaks), default=0)
        word = self.whole(item)[done:]
        return word if word.endswith("=") else f"{word} "
