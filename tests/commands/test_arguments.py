"""Every option has a range, and whatever value it is given is accepted or refused in a line."""

import contextlib
import io
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

MODULES = {}
for each, (module, _) in cli.COMMANDS.items():
    MODULES[each] = import_module(f"sublayer.commands.{module}")


class Option(NamedTuple):
    """An option of a command, and the types that it takes."""

    command: str
    name: str
    types: tuple[Any, ...]
    info: OptionInfo

    def __str__(self) -> str:
        return f"{self.command} {self.name}"

    @property
    def is_number(self) -> bool:
        return int in self.types or float in self.types

    @property
    def is_text(self) -> bool:
        is_repeatable = list in map(get_origin, self.types)
        return is_repeatable or str in self.types or Path in self.types


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
NUMBERS = [option for option in OPTIONS if option.is_number]
# The demo trains, wherever its results go.
TEXTS = [option for option in OPTIONS if option.is_text and option.command != "demo"]


def test_every_number_of_a_command_line_has_a_least_and_a_greatest_value() -> None:
    assert len(NUMBERS) > 20
    for option in NUMBERS:
        assert option.info.min is not None, option
        assert option.info.max is not None, option


def words_before(command: str) -> list[str]:
    """Return what a command needs beside its options, none of which is there."""
    needed = {
        "plan": ["gpt", "data.path=/nowhere/text"],
        "train": ["gpt", "data.path=/nowhere/text"],
        "compare": ["gpt", "data.path=/nowhere/text"],
        "evaluate": ["/nowhere/run"],
        "inspect": ["layers", "/nowhere/run"],
        "generate": ["/nowhere/run", "--prompt", "a"],
        "translate": ["/nowhere/run"],
        "export": ["huggingface", "/nowhere/run"],
        "import": ["huggingface", "/nowhere/run"],
    }
    return needed.get(command, [])


def run(*words: str) -> tuple[int, str]:
    said, shown = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        code = cli.main(words)
    return code, said.getvalue()


def check_refused(*words: str) -> None:
    code, said = run(*words)
    last = said.splitlines()[-1]
    assert code == 2
    assert last.startswith("error: ")


def check_accepted_or_refused(*words: str) -> None:
    code, said = run(*words)
    assert code in (0, 2)
    if code == 2:
        last = said.splitlines()[-1]
        assert last.startswith("error: ")


HOSTILE_NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "1e999",
    "",
    " ",
    "0x10",
    "1e3.5",
    "٣",
    "9" * 5000,
    "-" + "9" * 5000,
    "\udcff",
]


@pytest.mark.parametrize("option", rows(NUMBERS, 12), ids=str)
def test_a_number_out_of_its_range_is_refused(option: Option) -> None:
    least, greatest = option.info.min, option.info.max
    assert least is not None
    assert greatest is not None
    values = [least - 1, greatest + 1, -(2**63), 10**30]
    if greatest < 2**63:
        values.append(2**63)
    for value in (*map(str, values), *HOSTILE_NUMBERS):
        check_refused(option.command, *words_before(option.command), option.name, value)


NUMBERS_OR_NOT = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=5),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(option=st.sampled_from(NUMBERS), value=NUMBERS_OR_NOT)
def test_any_number_is_refused_or_leads_to_what_is_not_there(option: Option, value: str) -> None:
    before = words_before(option.command)
    check_accepted_or_refused(option.command, *before, f"{option.name}={value}")


HOSTILE_TEXTS = [
    "\udcff",
    "a/\udc80/b",
    "\0",
    "x" * 70_000,
    "~nobody-here/x",
    "/dev/null/x",
    "n" * 300,
    "loop/x",
    "",
]


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file of the working folder: a link to itself."""
    monkeypatch.chdir(tmp_path)
    link = Path("loop")
    link.symlink_to(link)
    return link


@pytest.mark.parametrize("option", rows(TEXTS, 12), ids=str)
def test_a_text_that_no_file_takes_is_refused_before_anything_is_made(
    option: Option, loop: Path
) -> None:
    before = words_before(option.command)
    for value in HOSTILE_TEXTS[:4]:
        check_refused(option.command, *before, option.name, value)
    assert list(Path().iterdir()) == [loop]
    for value in HOSTILE_TEXTS[4:]:
        check_accepted_or_refused(option.command, *before, f"{option.name}={value}")


COMMANDS = ("plan", "train", "compare", "evaluate", "generate", "translate", "tokenize", "export")


@pytest.mark.parametrize(
    ("command", "value"),
    rows(product(COMMANDS, HOSTILE_TEXTS), 14),
    ids=lambda value: ascii(value)[:12],
)
def test_an_argument_that_no_file_takes_is_refused(command: str, value: str, loop: Path) -> None:
    before = ["huggingface"] if command == "export" else []
    after = {
        "generate": ["--prompt", "a"],
        "tokenize": ["--text", "a"],
        "export": ["--out", "new"],
    }
    check_refused(command, *before, value, *after.get(command, []))
    assert list(Path().iterdir()) == [loop]


FIELDS = [
    "data.path",
    "data.corpus",
    "data.tokenizer",
    "init.run",
    "title",
    "model.block",
    "train.seed",
]
HOSTILE_VALUES = [*HOSTILE_TEXTS, "{a=nan}", "[[1]]", "{" + "a." * 9000]
VALUES = st.text(st.characters(), max_size=8) | st.sampled_from(HOSTILE_VALUES)


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(FIELDS), value=VALUES)
def test_any_setting_is_planned_or_refused(key: str, value: str) -> None:
    check_accepted_or_refused("plan", "gpt", f"{key}={value}")


def test_what_is_refused_is_named_as_the_user_wrote_it() -> None:
    evaluate = MODULES["evaluate"].command
    train = MODULES["train"].command
    with pytest.raises(ConfigError, match="^--length-penalty nan must be finite$"):
        check_arguments(evaluate, {"penalty": float("nan")})
    with pytest.raises(ConfigError, match=r"^RUN 'a\\udcff' is not UTF-8"):
        check_arguments(evaluate, {"runs": [Path("a\udcff")]})
    with pytest.raises(ConfigError, match=r"^KEY=VALUE 'title=\\x00' has a null character"):
        check_arguments(train, {"settings": ["title=a", "title=\0"]})


def test_a_batch_that_the_machine_cannot_hold_is_refused_before_it_is_made(
    sublayer: Sublayer, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.estimate.capacity.total_memory", lambda: 1 << 30)
    refusal = sublayer("generate", trained, "--prompt", "a", "--batch", 1_000_000).refusal()
    assert refusal == (
        "error: the cache of 1,000,000 rows of 32 tokens needs 3.81 GiB, 1 GiB here: "
        "take fewer rows at a time (--batch), or a shorter context\n"
    )


def test_a_comparison_of_too_many_values_is_refused_uncounted() -> None:
    values = ",".join(map(str, range(1, 100)))
    fields = ("n_layers", "d_model", "n_heads", "d_ff", "max_len")
    code, said = run("plan", "gpt", *(f"--vary=model.{field}={values}" for field in fields))
    assert code == 2
    assert said == "error: --vary asks for 9,509,900,499 combinations of values: give at most 500\n"
