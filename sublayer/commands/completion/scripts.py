"""The scripts by which shells ask what a word may become, and where each shell looks for its own.

A shell runs the program with ``_SUBLAYER_COMPLETE`` set to its name. Bash hands over the line, the
cursor and its word breaks, in ``COMP_LINE``, ``COMP_POINT`` and ``COMP_WORDBREAKS``; zsh and fish
the words up to the cursor as arguments, the last of them unfinished.
"""

from dataclasses import dataclass

VARIABLE = "_SUBLAYER_COMPLETE"
"""The environment variable that holds the shell which asks."""

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
