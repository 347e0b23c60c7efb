"""Help and the errors of options are in words: no Python types, and no library's rules."""

import re

import pytest

from sublayer.cli import COMMANDS
from tests.commands.results import Sublayer

LEAKS = re.compile(r"<(str|int|float|path|list|bool)|range>|<=x|list\[|NoneType|Optional")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_types_of_python(command: str, sublayer: Sublayer):
    shown = sublayer(command, "--help").shown()
    assert not LEAKS.search(shown)
    assert all(len(line) <= 80 or "Example: " in line for line in shown.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_usage_line_says_what_may_be_left_out_and_what_repeats(command: str, sublayer: Sublayer):
    usage, _, rest = sublayer(command, "--help").shown().partition("\n\n")
    places = usage.split()[4:]
    assert "[[" not in usage
    assert "]..." not in usage
    assert all("|" in place for place in places if place.startswith("{"))
    # What an option takes has a name, unless it is any text.
    any_text = re.findall(r"^  (--\S+) TEXT", rest, re.MULTILINE)
    assert set(any_text) <= {"--prompt", "--stop", "--text"}


def test_usage_lines_are_as_they_are_typed(sublayer: Sublayer):
    def usage(command: str) -> str:
        shown = sublayer(command, "--help").shown().partition("\n\n")[0]
        return " ".join(shown.removeprefix("Usage: ").split())

    assert usage("tokenize") == "sublayer tokenize [OPTIONS] [RUN]"
    assert usage("inspect") == "sublayer inspect [OPTIONS] WHAT [RUN ...]"
    assert usage("export") == "sublayer export [OPTIONS] RUN DIR"
    recipes = "{RECIPE|STUDY} [RECIPE ...] [KEY=VALUE ...]"
    assert usage("plan") == f"sublayer plan [OPTIONS] {recipes}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("plan", "gpt", "--match", "foo"),
            "--match 'foo' is not one of parameters, flops, time, none",
        ),
        (("plan", "gpt", "--seeds", "x"), "--seeds must be a whole number"),
        (("plan", "gpt", "--seeds", "0"), "--seeds must be at least 1"),
        (("generate", "r", "--prompt", "a", "--top-p", "3"), "--top-p must be at most 1"),
        (("evaluate", "r", "--longest-share", "x"), "--max-length-ratio must be a number"),
        (("inspect", "foo"), "WHAT 'foo' is not one of layers, splitting, paths"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(
    words: tuple[str, ...], says: str, sublayer: Sublayer
):
    assert sublayer(*words).refusal() == f"error: {says}; see `sublayer {words[0]} --help`\n"


def test_limits_and_kinds_of_values_are_shown_in_words(sublayer: Sublayer):
    shown = sublayer("generate", "--help").shown()
    words = " ".join(shown.split())
    assert "--seed N Random seed for sampling." in words
    assert "--temperature X" in words
    assert "[1 to 100,000,000]" in words
    assert "--window exact|rolling" in words
