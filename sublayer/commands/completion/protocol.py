"""What a shell is answered that asks what a word may become."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from typer.core import TyperArgument, TyperGroup, TyperOption

Load = Callable[[str], TyperGroup]
"""Returns all commands, the one that is named with its options and arguments."""
Reply = tuple[str, str]
"""A whole word that stands where the unfinished one does, and what it is."""


def answer(shell: str, given: Sequence[str], load: Load) -> str:
    """Return the lines that a shell's script reads, empty where it shall offer files.

    ``given`` are the program's arguments. A word that ends with ``=`` continues, others end there.
    """
    words, start = _typed(shell, given)
    wanted = next((word for word in words if not word.startswith("-")), "")
    replies = find_replies(words, start, load(wanted))
    if shell == "bash":
        return "\n".join(_of_bash(value, start) for value, _ in replies)
    return "\n".join("\t".join((value, " ".join(said.split()))) for value, said in replies)


def find_replies(words: Sequence[str], start: str, group: TyperGroup) -> list[Reply]:
    """Return what the unfinished word ``start`` may become behind ``words``."""
    place = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    if place is None:
        return _names(group, start)
    command = group.commands.get(words[place])
    if command is None:
        return []
    before = list(words[place + 1 :])
    name, equals, value = start.partition("=")
    if equals and name.startswith("-"):  # --split=test
        found = find_replies([*words, name], value, group)
        return [(f"{name}={each}", said) for each, said in found]
    options = [each for each in command.params if isinstance(each, TyperOption)]
    asked = next((each for each in options if _awaits_value(each, before)), None)
    if asked is not None:
        before.pop()
    with command.make_context(words[place], list(before), resilient_parsing=True) as context:
        if asked is not None:
            return _values(asked, context, start)
        if start.startswith("-"):
            given = [each for each in options if not each.multiple and set(each.opts) & set(before)]
            offered = [(each.opts[0], each.help or "") for each in options if each not in given]
            return [each for each in [*offered, _HELP] if each[0].startswith(start)]
        for argument in command.params:
            if isinstance(argument, TyperArgument) and _takes_more(argument, context):
                return _values(argument, context, start)
    return []


_HELP = ("--help", "Show this message and exit.")


def _names(group: TyperGroup, start: str) -> list[Reply]:
    offered = [(name, each.short_help or "") for name, each in group.commands.items()]
    if start.startswith("-"):
        offered = [("--version", "Show the version."), _HELP]
    return [each for each in offered if each[0].startswith(start)]


def _awaits_value(option: TyperOption, before: Sequence[str]) -> bool:
    return bool(before) and before[-1] in option.opts and not option.is_flag


def _values(parameter: TyperArgument | TyperOption, context: Any, start: str) -> list[Reply]:
    found = parameter.shell_complete(context, start)
    return [(str(each.value), each.help or "") for each in found]


def _takes_more(argument: TyperArgument, context: Any) -> bool:
    return argument.nargs == -1 or not context.params.get(argument.name)


def _typed(shell: str, given: Sequence[str]) -> tuple[list[str], str]:
    """Return the words before the cursor, without the program, and the one that is unfinished."""
    if shell != "bash":
        *words, start = given or [""]
        return words, start
    line = os.fsencode(os.environ["COMP_LINE"])[: int(os.environ["COMP_POINT"])]
    _, *words, start = _split(os.fsdecode(line))
    return words, start


def _split(line: str) -> list[str]:
    """Split a line as a shell does, its last word unfinished; empty behind a blank."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:  # a quote that is not closed yet
        words.append(lexer.token)
    else:
        if line[-1:].isspace():
            words.append("")
    return words if len(words) > 1 else [*words, ""]


def _of_bash(value: str, start: str) -> str:
    """Return the part of a word that bash replaces, with a blank where the word ends."""
    breaks = [each for each in "=:" if each in os.environ.get("COMP_WORDBREAKS", "=:")]
    done = max((start.rfind(each) + 1 for each in breaks), default=0)
    return value[done:] if value.endswith("=") else f"{value[done:]} "
