"""Every option has a range, and no value of an option or an argument is met by anything but a line."""

import contextlib
import io
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.models import OptionInfo

from sublayer import cli
from sublayer.commands.arguments import check_arguments, option_name
from sublayer.errors import ConfigError
from tests.commands.conftest import Sublayer

MODULES = {name: import_module(f"sublayer.commands.{module}") for name, (module, _) in cli.COMMANDS.items()}


def options(command: str) -> dict[str, tuple[tuple[Any, ...], OptionInfo]]:
    """Give each option of a command with the types that it takes."""
    found = {}
    for parameter in signature(MODULES[command].command).parameters.values():
        annotation, *metadata = get_args(parameter.annotation)
        for info in metadata:
            name = option_name(info) if isinstance(info, OptionInfo) else None
            if name:
                found[name] = (get_args(annotation) or (annotation,), info)
    return found


NUMBERS = [
    (command, name, info)
    for command in MODULES
    for name, (types, info) in options(command).items()
    if int in types or float in types
]
TEXTS = [
    (command, name)
    for command in MODULES
    if command != "demo"  # which trains, wherever its results go
    for name, (types, _) in options(command).items()
    if str in types or Path in types or any(get_origin(each) is list for each in types)
]


def test_every_number_of_a_command_line_has_a_least_and_a_greatest_value() -> None:
    assert len(NUMBERS) > 20
    unbounded = [f"{command} {name}" for command, name, info in NUMBERS if info.min is None or info.max is None]
    assert unbounded == []


def words_before(command: str) -> list[str]:
    """Give what a command needs beside its options, none of which is there."""
    return {
        "plan": ["gpt", "data.path=/nowhere/text"],
        "train": ["gpt", "data.path=/nowhere/text"],
        "compare": ["gpt", "data.path=/nowhere/text"],
        "evaluate": ["/nowhere/run"],
        "inspect": ["layers", "/nowhere/run"],
        "generate": ["/nowhere/run", "--prompt", "a"],
        "translate": ["/nowhere/run"],
        "export": ["huggingface", "/nowhere/run"],
        "import": ["huggingface", "/nowhere/run"],
    }.get(command, [])


def run(*words: str) -> tuple[int, str]:
    said, shown = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        code = cli.main(words)
    return code, said.getvalue()


def check_refused(*words: str) -> None:
    code, said = run(*words)
    assert code == 2
    assert said.splitlines()[-1].startswith("error: ")


HOSTILE_NUMBERS = ["nan", "inf", "-inf", "1e999", "", " ", "0x10", "1e3.5", "٣", "9" * 5000, "-" + "9" * 5000, "\udcff"]


@pytest.mark.parametrize(("command", "name", "info"), NUMBERS, ids=[f"{name} {option}" for name, option, _ in NUMBERS])
def test_a_number_out_of_its_range_is_refused(command: str, name: str, info: OptionInfo) -> None:
    assert info.min is not None and info.max is not None
    for value in [f"{info.min - 1}", f"{info.max + 1}", *map(str, (2**63, -(2**63), 10**30)), *HOSTILE_NUMBERS]:
        if value != str(2**63) or info.max < 2**63:
            check_refused(command, *words_before(command), name, value)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(option=st.sampled_from(NUMBERS), value=st.integers().map(str) | st.floats().map(repr) | st.text(max_size=5))
def test_any_number_is_refused_or_leads_to_what_is_not_there(option: tuple[str, str, OptionInfo], value: str) -> None:
    command, name, _ = option
    code, said = run(command, *words_before(command), f"{name}={value}")
    assert code in (0, 2)
    assert code == 0 or said.splitlines()[-1].startswith("error: ")


HOSTILE_TEXTS = ["\udcff", "a/\udc80/b", "\0", "x" * 70_000, "~nobody-here/x", "/dev/null/x", "n" * 300, "loop/x", ""]


@pytest.mark.parametrize(("command", "name"), TEXTS, ids=[" ".join(each) for each in TEXTS])
def test_a_text_that_no_file_takes_is_refused_before_anything_is_made(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for value in HOSTILE_TEXTS[:4]:
        check_refused(command, *words_before(command), name, value)
    assert list(Path().iterdir()) == [Path("loop")]
    for value in HOSTILE_TEXTS[4:]:
        code, said = run(command, *words_before(command), f"{name}={value}")
        assert code in (0, 2)
        assert code == 0 or said.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    "command", ["plan", "train", "compare", "evaluate", "generate", "translate", "tokenize", "export"]
)
@pytest.mark.parametrize("value", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_an_argument_that_no_file_takes_is_refused(
    command: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    before = {"export": ["huggingface"]}.get(command, [])
    after = {"generate": ["--prompt", "a"], "tokenize": ["--text", "a"], "export": ["--out", "new"]}.get(command, [])
    check_refused(command, *before, value, *after)
    assert list(Path().iterdir()) == [Path("loop")]


@settings(max_examples=60, deadline=None)
@given(
    key=st.sampled_from(
        ["data.path", "data.corpus", "data.tokenizer", "init.run", "title", "model.block", "train.seed"]
    ),
    value=st.text(st.characters(), max_size=8)
    | st.sampled_from([*HOSTILE_TEXTS, "{a=nan}", "[[1]]", "{" + "a." * 9000]),
)
def test_any_setting_is_planned_or_refused(key: str, value: str) -> None:
    code, said = run("plan", "gpt", f"{key}={value}")
    assert code in (0, 2)
    assert code == 0 or said.splitlines()[-1].startswith("error: ")


def test_what_is_refused_is_named_as_the_user_wrote_it() -> None:
    evaluate, plan = MODULES["evaluate"].command, MODULES["plan"].command
    with pytest.raises(ConfigError, match="^--length-penalty nan must be finite$"):
        check_arguments(evaluate, {"penalty": float("nan")})
    with pytest.raises(ConfigError, match=r"^RUN 'a\\udcff' is not UTF-8"):
        check_arguments(evaluate, {"run": Path("a\udcff")})
    with pytest.raises(ConfigError, match=r"^KEY=VALUE 'title=\\x00' has a null character"):
        check_arguments(plan, {"settings": ["title=a", "title=\0"]})


@pytest.mark.slow
def test_a_batch_that_the_machine_cannot_hold_is_refused_before_it_is_made(
    sublayer: Sublayer, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.model.capacity.total_memory", lambda: 1 << 30)
    code, _, said = sublayer("generate", trained, "--prompt", "a", "--batch", 1_000_000)
    assert code == 2
    assert said == (
        "error: the cache of 1,000,000 rows of 32 tokens needs 3.81 GiB, 1 GiB here: take fewer rows at a time "
        "(--batch), or a shorter context\n"
    )


def test_a_comparison_of_too_many_values_is_refused_uncounted() -> None:
    values = ",".join(map(str, range(1, 100)))
    words = [f"--vary=model.{name}={values}" for name in ("n_layers", "d_model", "n_heads", "d_ff", "max_len")]
    code, said = run("plan", "gpt", *words)
    assert code == 2
    assert said == "error: --vary asks for 9,509,900,499 combinations of values: give at most 500\n"
