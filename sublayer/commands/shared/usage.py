"""What typer shows of types and says of mistakes, in words: no types of Python, no library's."""

import re
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperOption

from sublayer.errors import ConfigError

_RULES = (
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a valid number.*", "must be a number"),
    (r"Input should be greater than or equal to (.+)", r"must be at least \1"),
    (r"Input should be less than or equal to (.+)", r"must be at most \1"),
    (r"Input should be greater than (.+)", r"must be more than \1"),
    (r"Input should be less than (.+)", r"must be less than \1"),
)
_TYPES = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH"}


def show_words(command: TyperCommand) -> None:
    """Let a command's help show what a value is, ``N``, ``TEXT`` or its choices, and its limits."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            _replace(parameter, "display_type_rich", None)
            _replace(parameter, "get_usage_pieces", [_place(parameter)])
        elif isinstance(parameter, TyperOption):
            if parameter.metavar is None and not parameter.is_flag:
                parameter.metavar = _in_words(parameter)
            limits = _limits(parameter.min, parameter.max)
            _replace(parameter, "_get_number_range_help_str", limits)


def refuse_repeats(command: TyperCommand) -> None:
    """Let a command refuse an option that takes one value and is given twice.

    The parser would take the last, and leave out the others in silence.
    """
    make = command.make_parser

    def make_parser(context: Any) -> Any:
        parser: Any = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            parsed = parse(args=args)
            given = [each for each in parsed[2] if isinstance(each, TyperOption)]
            for option in given:
                is_single = not (option.multiple or option.is_flag or option.count)
                if is_single and (n_times := given.count(option)) > 1:
                    raise ConfigError(
                        f"{option.opts[0]} is given {n_times} times, and takes one value: give it "
                        "once"
                    )
            return parsed

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser  # type: ignore[method-assign,assignment]


def wrong_value(name: str, message: str) -> str:
    """Format typer's message about the value of an option or an argument."""
    said = message.removeprefix("Value error, ").rstrip(".")
    for pattern, words in _RULES:
        if re.fullmatch(pattern, said):
            return f"{name} {re.sub(pattern, words, said)}"
    value, is_none_of, choices = said.partition(" is not one of ")
    if is_none_of:
        return f"{name} {value} is not one of {choices.replace(chr(39), '')}"
    return f"{name}: {said[:1].lower()}{said[1:]}"


def _place(argument: TyperArgument) -> str:
    """Return an argument as it stands in a usage line: ``RUN``, ``[RUN]`` or ``[RUN ...]``."""
    name = argument.metavar or argument.name.upper()
    if name.startswith(("[", "{")):
        return name  # it says itself what may be left out
    if argument.nargs == -1:
        name += " ..."
    if argument.required:
        return f"{{{name}}}" if "|" in name else name
    return f"[{name}]"


def _replace(parameter: Any, method: str, answer: str | list[str] | None) -> None:
    setattr(parameter, method, lambda *_, **__: answer)


def _in_words(option: TyperOption) -> str:
    described = option.type_descriptor
    if described.is_choice:
        return "|".join(map(str, described.choices or ()))
    if described.is_path:
        return _TYPES["path"]
    for kind, words in _TYPES.items():
        if re.search(rf"\b{kind}\b", option.bare_type()):
            return words
    return _TYPES["str"]


def _limits(least: float | None, most: float | None) -> str | None:
    if least is None or most is None:
        return None
    return f"{_number(least)} to {_number(most)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"
