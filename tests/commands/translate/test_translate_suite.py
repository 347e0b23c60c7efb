"""A suite's BLEU is that of the lines that ``sublayer translate`` prints, by sacreBLEU."""

from pathlib import Path

import pytest
import sacrebleu

from tests.commands.results import Sublayer
from tests.commands.translate.conftest import Translate

ENGLISH = ["the cat sees a dog", "a dog runs", "the dog and the cat", "a cat sees the Dog and runs"]
GERMAN = ["der Kater sieht ein Hund", "ein Hund rennt", "der Kater", "ein Kater sieht der hund"]


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_a_suite_is_that_of_the_translations(
    translator: Path, translate: Translate, sublayer: Sublayer, tmp_path: Path, lowercase: bool
):
    (tmp_path / "en.txt").write_text("\n".join(ENGLISH) + "\n")
    (tmp_path / "de.txt").write_text("\n".join(GERMAN) + "\n")
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'[[pairs]]\nsource = "{tmp_path}/en.txt"\ntarget = "{tmp_path}/de.txt"\n'
        f'name = "en-de"\nlowercase = {str(lowercase).lower()}\n'
    )
    found = sublayer("evaluate", translator, "--suite", suite, "--json").found()
    cells = {row["name"]: row["cells"]["bleu/en-de"] for row in found["rows"]}

    printed = translate(translator, [f"{line}\n".encode() for line in ENGLISH]).out.splitlines()
    assert len(printed) == len(ENGLISH)
    scored = sacrebleu.corpus_bleu(printed, [GERMAN], lowercase=lowercase).score
    assert cells[translator.name]["mean"] == pytest.approx(scored)
    assert scored > 0 and cells[translator.name]["error"] > 0
    copied = sacrebleu.corpus_bleu(ENGLISH, [GERMAN], lowercase=lowercase).score
    assert cells["source copied"]["mean"] == pytest.approx(copied)
