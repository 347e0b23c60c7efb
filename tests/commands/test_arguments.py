"""Every option has a range, and whatever value it is given is accepted or refused in a line."""

from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.models import OptionInfo

from sublayer import cli
from sublayer.commands.shared.arguments import check_arguments, option_name
from sublayer.errors import ConfigError
from tests.breadth import rows
from tests.commands.results import Sublayer

MODULES = {
    name: import_module(f"sublayer.commands.{module}") for name, (module, _) in cli.COMMANDS.items()
}


class Option(NamedTuple):
    """An option of a command, and the types that it takes."""

    command: str
    name: str
    types: tuple[Any, ...]
    info: OptionInfo

    def __str__(self) -> str:
        return f"{self.command} {self.name}"


def options(command: str) -> Iterator[Option]:
    """List the options of a command."""
    for parameter in signature(MODULES[command].command).parameters.values():
        annotation, *metadata = get_args(parameter.annotation)
        types = get_args(annotation) or (annotation,)
        for info in metadata:
            name = option_name(info) if isinstance(info, OptionInfo) else None
            if name:
                yield Option(command, name, types, info)


OPTIONS = [option for command in MODULES for option in options(command)]
NUMBERS = [option for option in OPTIONS if {int, float} & {*option.types}]
TEXTS = [
    option
    for option in OPTIONS
    if (list in map(get_origin, option.types) or {str, Path} & {*option.types})
    and option.command != "demo"  # which trains, wherever its results go
]
BEFORE = {
    **dict.fromkeys(("plan", "train", "compare"), "gpt data.path=/nowhere/text"),
    **dict.fromkeys(("evaluate", "translate"), "/nowhere/run"),
    **dict.fromkeys(("export", "import"), "huggingface /nowhere/run"),
    "inspect": "layers /nowhere/run",
    "generate": "/nowhere/run --prompt a",
}
"""Arguments that commands need beside their options, none of which is there."""


def check_refused(sublayer: Sublayer, *words: str, may_be_accepted: bool = False) -> None:
    code, _, err = sublayer(*words)
    if not (may_be_accepted and code == cli.DONE):
        assert code == cli.MISTAKE
        assert err.splitlines()[-1].startswith("error: ")


def test_every_number_of_a_command_line_has_a_least_and_a_greatest_value():
    assert len(NUMBERS) > 20
    for option in NUMBERS:
        assert None not in (option.info.min, option.info.max), option


HOSTILE_NUMBERS = [
    *("nan", "inf", "-inf", "1e999", "", " ", "0x10", "1e3.5", "٣", "\udcff"),
    *("9" * 5000, "-" + "9" * 5000, str(-(2**63)), str(10**30)),
]


@pytest.mark.parametrize("option", rows(NUMBERS, 8), ids=str)
def test_a_number_out_of_its_range_is_refused(sublayer, option):
    least, greatest = option.info.min, option.info.max
    for value in (least - 1, greatest + 1, *HOSTILE_NUMBERS):
        words = (option.command, *BEFORE.get(option.command, "").split(), option.name, str(value))
        check_refused(sublayer, *words)


HOSTILE_TEXTS = [
    *("\udcff", "a/\udc80/b", "\0", "x" * 70_000),
    *("~nobody-here/x", "/dev/null/x", "n" * 300, "loop/x", ""),
]


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file of the working folder: a link to itself."""
    monkeypatch.chdir(tmp_path)
    link = Path("loop")
    link.symlink_to(link)
    return link


@pytest.mark.parametrize("option", rows(TEXTS, 8), ids=str)
def test_a_text_that_no_file_takes_is_refused_before_anything_is_made(sublayer, option, loop):
    before = (option.command, *BEFORE.get(option.command, "").split())
    for value in HOSTILE_TEXTS[:4]:
        check_refused(sublayer, *before, option.name, value)
    assert list(Path().iterdir()) == [loop]
    for value in HOSTILE_TEXTS[4:]:
        check_refused(sublayer, *before, f"{option.name}={value}", may_be_accepted=True)


COMMANDS = ("plan", "train", "compare", "evaluate", "generate", "translate", "tokenize", "export")
AFTER = {"generate": ["--prompt", "a"], "tokenize": ["--text", "a"], "export": ["--out", "new"]}


@pytest.mark.parametrize(
    ("command", "value"),
    rows(product(COMMANDS, HOSTILE_TEXTS), 10),
    ids=lambda value: ascii(value)[:12],
)
def test_an_argument_that_no_file_takes_is_refused(sublayer, command, value, loop):
    before = ["huggingface"] if command == "export" else []
    check_refused(sublayer, command, *before, value, *AFTER.get(command, []))
    assert list(Path().iterdir()) == [loop]


FIELDS = ("data.path", "data.corpus", "data.tokenizer", "init.run", "title", "model.block")
HOSTILE_VALUES = [*HOSTILE_TEXTS, "{a=nan}", "[[1]]", "{" + "a." * 9000]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from([*FIELDS, "train.seed"]),
    value=st.text(st.characters(), max_size=8) | st.sampled_from(HOSTILE_VALUES),
)
def test_any_setting_is_planned_or_refused(sublayer, key, value):
    check_refused(sublayer, "plan", "gpt", f"{key}={value}", may_be_accepted=True)


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("evaluate", {"penalty": float("nan")}, "^--length-penalty nan must be finite$"),
        ("evaluate", {"runs": [Path("a\udcff")]}, r"^RUN 'a\\udcff' is not UTF-8"),
        (
            "train",
            {"settings": ["title=a", "title=\0"]},
            r"^KEY=VALUE 'title=\\x00' has a null character",
        ),
    ],
)
def test_an_argument_is_named_as_the_user_wrote_it(command, arguments, message):
    with pytest.raises(ConfigError, match=message):
        check_arguments(MODULES[command].command, arguments)


def test_a_comparison_of_too_many_values_is_refused_uncounted(sublayer):
    values = ",".join(map(str, range(1, 100)))
    fields = ("n_layers", "d_model", "n_heads", "d_ff", "max_len")
    refusal = sublayer("plan", "gpt", *(f"--vary=model.{field}={values}" for field in fields))
    assert "--vary asks for 9,509,900,499 combinations of values: give at most 500" in refusal.err
