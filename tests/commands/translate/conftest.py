"""A translator of a few words, trained once, and lines translated by one."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.commands.conftest import StandardInput
from tests.commands.results import Result, Sublayer
from tests.translators import sentences, train_translator, write_pair

ENGLISH = ("a", "cat", "dog", "sees", "the", "and", "runs")
GERMAN = ("ein", "Kater", "Hund", "sieht", "der", "und", "rennt")

Translate = Callable[..., Result]


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose last three checkpoints are kept, beside its texts."""
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, *(sentences(words, 240, longest=6) for words in (ENGLISH, GERMAN)))
    return train_translator(
        folder,
        data__lowercase=False,
        data__vocab_size=60,
        train__evaluate_steps=25,
        train__best_by="bleu",
        train__keep_checkpoints=3,
    )


@pytest.fixture
def translate(sublayer: Sublayer, standard_input: StandardInput) -> Translate:
    """Translate what stands on standard input by a model, with options."""

    def run(model: Path, given: Iterable[bytes], *options: object) -> Result:
        standard_input(given)
        return sublayer("translate", model, *options)

    return run
