"""Shell completion of command lines: scripts, the words of a request, their candidates.

A shell runs the program with ``_SUBLAYER_COMPLETE`` set to its name. Bash passes the line, the
cursor and its word breaks in ``COMP_LINE``, ``COMP_POINT`` and ``COMP_WORDBREAKS``; zsh and fish
the words up to the cursor as arguments, the last one unfinished.

Candidates are complete words with descriptions; typer filters them by prefix. Their modules are
imported late, since this one is imported where commands are declared.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.completion import shell_completion  # type: ignore[attr-defined]
from typer.core import TyperGroup

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
    """A shell's script, its installed path, and the line that loads it."""

    script: str
    path: str
    """Below the home folder."""
    settings: str = ""
    """The shell's startup file, below the home folder, which takes ``line``; empty: none."""
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


def answer(shell: str, arguments: Sequence[str], load: Callable[[str], TyperGroup]) -> str:
    """Return the output for a shell's script, empty for completion by files.

    ``arguments`` are the program's arguments; ``load`` returns all commands, the named one with its
    options. A word ending with ``=`` continues, others end there.
    """
    words = arguments or [""]
    if shell == "bash":  # the words before the cursor, without the program
        line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]
        _, *words = shell_completion.split_arg_string(os.fsdecode(line))
        words = words if words and not line[-1:].isspace() else [*words, ""]
    wanted = next((word for word in words[:-1] if not word.startswith("-")), "")
    return (BashCompletion if shell == "bash" else ShellCompletion)(load(wanted), words).complete()


class ShellCompletion(shell_completion.ShellComplete):
    """Completion for zsh and fish: complete words with descriptions."""

    def __init__(self, group: TyperGroup, words: Sequence[str]) -> None:
        super().__init__(group, {}, "sublayer", "")
        *self.words, self.start = words

    def source_vars(self) -> dict[str, Any]:
        """Return nothing: the scripts have no variables."""
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the unfinished one, and the unfinished one."""
        return [*self.words], self.start

    def format_completion(self, item: Any) -> str:
        """Return a word and its description, divided by a tab."""
        return f"{self.whole(item)}\t{' '.join((item.help or '').split())}"

    def whole(self, item: Any) -> str:
        """Return the complete word: for ``--split=te`` with the option."""
        option, equals, _ = self.start.partition("=")
        return f"{option}={item.value}" if equals and option.startswith("-") else str(item.value)


class BashCompletion(ShellCompletion):
    """Completion for bash, which replaces a word after its last break."""

    def format_completion(self, item: Any) -> str:
        """Return the part of a word that bash replaces, with a blank if the word ends."""
        breaks = [mark for mark in "=:" if mark in os.environ.get("COMP_WORDBREAKS", "=:")]
        done = max((self.start.rfind(mark) + 1 for mark in breaks), default=0)
        word = self.whole(item)[done:]
        return word if word.endswith("=") else f"{word} "


Candidates = list[tuple[str, str]]


def _titled(folder: Path) -> Candidates:
    from sublayer.config.layers import read_toml

    files = sorted(folder.glob("*.toml"), key=lambda path: path.stem)
    return [(path.stem, str(read_toml(path).get("title", ""))) for path in files]


def recipes(incomplete: str) -> Candidates:
    """Return the shipped recipes, and the runs as sources of recipes."""
    from sublayer.config.layers import SHIPPED

    return [*_titled(SHIPPED), *runs(incomplete)]


def presets(incomplete: str) -> Candidates:
    """Return the presets of fine-tuning."""
    from sublayer.config.finetune import SHIPPED

    return _titled(SHIPPED)


def recipes_and_studies(incomplete: str) -> Candidates:
    """Return the shipped recipes and studies, and the runs."""
    from sublayer.study.definition import SHIPPED

    return [*recipes(incomplete), *_titled(SHIPPED)]


def recipes_and_settings(incomplete: str) -> Candidates:
    """Return candidates after the first of several recipes: recipes, runs, settings."""
    return [*([] if "." in incomplete else recipes(incomplete)), *settings(incomplete)]


def runs(incomplete: str) -> Candidates:
    """Return the runs and imported models below ``runs``; a comparison's runs after its path."""
    return [run for run in runs_and_comparisons(incomplete) if run[1] != "comparison"]


def runs_and_comparisons(incomplete: str) -> Candidates:
    """Return the runs, models and comparisons below ``runs``."""
    from sublayer.reporting.listing import find_folders

    # The many runs of a comparison are shown only below its path.
    with_arms = f"{os.sep}arms{os.sep}" in incomplete
    folder = Path("runs")
    folders = find_folders(folder, with_arms=with_arms) if folder.is_dir() else ()
    return [(str(path), kind) for path, kind in folders]


def fields(incomplete: str) -> Candidates:
    """Return tables, and fields as ``sublayer fields`` takes them."""
    from sublayer.config.recipe import TABLES

    described = [(key.rstrip("="), text) for key, text in settings("")]
    return [*((table, f"all fields of [{table}]") for table in TABLES), *described]


def settings(incomplete: str) -> Candidates:
    """Return ``field=`` for each field, followed by its choices, if any."""
    from sublayer.config.recipe import description, keys

    key, equals, _ = incomplete.partition("=")
    if equals:
        return [(f"{key}={choice}", text) for choice, text in _values(key)]
    return [(f"{name}=", description(name).partition(". ")[0]) for name in keys()]


def varied(incomplete: str) -> Candidates:
    """Return ``field=`` for each field, then its choices, several divided by commas."""
    key, equals, values = incomplete.partition("=")
    if not equals:
        return settings(incomplete)
    done, comma, _ = values.rpartition(",")
    chosen = done.split(",")
    return [
        (f"{key}={done}{comma}{choice}", text)
        for choice, text in _values(key)
        if choice not in chosen
    ]


def _values(key: str) -> Candidates:
    from sublayer.config.data import TOKENIZERS
    from sublayer.config.messages import alternatives, choices_of
    from sublayer.config.recipe import declarations

    if key == "init.run":
        return runs("")
    if key == "data.corpus":
        return corpora("")
    values: dict[str, None] = dict.fromkeys(TOKENIZERS if key == "data.tokenizer" else ())
    for info in declarations(key).values() if not values else ():
        has_switch = bool in alternatives(info.annotation)
        choices = ("true", "false") if has_switch else choices_of(info.annotation)
        values.update(dict.fromkeys(map(str, choices)))
    return [(value, "") for value in values]


def corpora(incomplete: str) -> Candidates:
    """Return the corpora by name."""
    from sublayer.config.data import CORPORA

    return [(name, "") for name in CORPORA]


def tasks(incomplete: str) -> Candidates:
    """Return the tasks for fine-tuning."""
    from sublayer.tasks.registry import TASKS

    return [(task.name, task.title) for task in TASKS.values()]


def devices(incomplete: str) -> Candidates:
    """Return kinds of devices; listing the available ones takes PyTorch."""
    return [("cpu", "the processor"), ("cuda", "the first GPU")]


def planned_devices(incomplete: str) -> Candidates:
    """Return kinds of devices, and devices with datasheets."""
    from sublayer.estimate.cluster import DEVICES

    return [*devices(incomplete), *((name, "by its datasheet") for name in DEVICES)]


def scales(ctx: typer.Context, incomplete: str) -> Candidates:
    """Return the scales of the shipped study named before."""
    from sublayer.study.definition import shipped_studies, study_scales

    study = ctx.params.get("source")
    return [(name, "") for name in study_scales(study)] if study in shipped_studies() else []
