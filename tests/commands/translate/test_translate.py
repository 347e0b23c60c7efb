"""A translator by the commands: ``translate``, ``evaluate``, ``inspect`` and ``export``."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from sublayer.errors import ConfigError
from sublayer.interop.huggingface.exchange import read_huggingface
from sublayer.loading import load
from sublayer.training.metrics import METRICS, read_metrics
from tests.commands.results import Sublayer
from tests.translators import write_lines

MEASURES = ("bleu", "sacrebleu", "chrf")
ENGLISH = ["the cat sees a dog", "a dog runs", "the dog and the cat", "a cat sees the Dog and runs"]
GERMAN = ["der Kater sieht ein Hund", "ein Hund rennt", "der Kater", "ein Kater sieht der hund"]


def evaluated(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    return sublayer("evaluate", run, "--split", "test", *options, "--json").found()


def inspected(sublayer: Sublayer, what: str, run: Path, *options: object) -> dict[str, Any]:
    [found] = sublayer("inspect", what, run, *options, "--json").found()["runs"]
    return found


def checkpoints(run: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def test_lines_are_translated_in_order(translate, translator):
    lines = ["the cat sees a dog", "", "a dog runs", "the dog and the cat", "cat"]
    text = "\n".join(lines).encode()
    out = translate(translator, text).shown()
    alone = [translate(translator, f"{line}\n".encode(), "--batch", 1).out for line in lines]
    assert "".join(alone) == out
    assert alone[1] == "\n"
    assert translate(translator, text, "--window", 2, "--batch", 2).out == out


def test_a_line_that_is_too_long_is_empty(translate, translator):
    long = b"a cat and " * 40
    code, out, err = translate(translator, b"a cat\n" + long + b"\na dog\n")
    assert (code, [bool(line) for line in out.split("\n")]) == (0, [True, False, True, False])
    assert "line 2 has 121 tokens, more than the 32 that the model reads" in err
    assert "too long, and empty: 1 of 3 lines" in err


def test_bytes_that_are_no_text_are_named_and_the_lines_before_them_translated(
    translate, translator
):
    whole = translate(translator, b"a cat\nthe dog\n").out
    code, out, err = translate(translator, b"\xef\xbb\xbfa cat\nthe dog\n\xff\na dog\n")
    assert (code, out) == (2, whole)
    assert "standard input, line 3: byte 0xff is not UTF-8" in err
    assert "translated before it: 2 lines" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interruption_leaves_the_lines_that_were_translated(translate, translator, as_json):
    def lines() -> Iterator[bytes]:
        yield from (b"a cat\n", b"the dog\n", "a Ж\n".encode(), b"cat\n")
        raise KeyboardInterrupt

    options = ("--window", 3, *(["--json"] if as_json else []))
    code, out, err = translate(translator, lines(), *options)
    assert code == 130
    assert len(json.loads(out)["translations"] if as_json else out.splitlines()) == 3
    assert "interrupted after 3 lines: the input from line 4 on is left" in err
    assert "unknown to the vocabulary: " in err


def test_a_run_is_scored_on_its_splits(sublayer, translator):
    found = evaluated(sublayer, translator)
    assert all(30 < found[name] <= 100 for name in MEASURES)
    words = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
    assert found["signature"]["bleu"].startswith(words)
    assert len(found["translations"]) == found["lines"]
    shown = sublayer("evaluate", translator, "--compounds").out
    assert re.search(r"^chrF of text ", shown, re.MULTILINE)
    assert shown.splitlines()[-1].startswith("with compounds split BLEU is inflated")


def test_a_run_is_tested_against_another_and_against_a_file(sublayer, translator, tmp_path):
    earliest = checkpoints(translator)[0]
    found = evaluated(sublayer, translator, "--against", earliest)
    alone = evaluated(sublayer, earliest)
    measures = found["against"]["measures"]
    for name in MEASURES:
        paired = measures[name]
        expected = pytest.approx((found[name], alone[name]))
        assert (paired["value"], paired["other"]) == expected
        assert 0 < paired["p_randomisation"] <= 1
        assert "p_bootstrap" not in paired
    theirs = tmp_path / "theirs.de"
    write_lines(theirs, alone["translations"])
    of_text = evaluated(sublayer, translator, "--against", theirs)["against"]["measures"]
    assert of_text == {name: measures[name] for name in ("sacrebleu", "chrf")}
    shown = sublayer("evaluate", translator, "--split", "test", "--against", theirs).out
    assert f"against {theirs}" in shown and "randomisation" in shown


def test_the_best_checkpoint_is_that_of_the_best_greedy_translations(sublayer, translator):
    lines = read_metrics(translator / METRICS)
    bleu = {line["step"]: line["bleu"] for line in lines if line["kind"] == "valid"}
    best = json.loads((translator / "record.json").read_text())["valid"]
    assert best["step"] == max(bleu, key=lambda step: bleu[step])
    assert best["bleu"] == max(bleu.values()) > 0
    limits = ("--max-length-ratio", 2, "--max-length-offset", 10)
    greedy = sublayer("evaluate", translator, "--beam", 1, *limits, "--split", "valid", "--json")
    assert greedy.found()["bleu"] == pytest.approx(best["bleu"], abs=1e-9)


def test_the_newest_checkpoints_are_averaged_and_exported(sublayer, translator, tmp_path):
    parts = [load(path).state_dict() for path in checkpoints(translator)]
    averaged = load(translator, average=len(parts)).state_dict()
    for name, value in averaged.items():
        total = sum(part[name].double() for part in parts)
        assert (value - total / len(parts)).abs().max() < 1e-6
    words = ("export", translator, tmp_path / "mean", "--average", len(parts))
    assert sublayer(*words).code == 0
    exported = read_huggingface(tmp_path / "mean").state_dict()
    assert all(torch.equal(exported[name], value) for name, value in averaged.items())
    # A best checkpoint that is older than the others is none of the newest.
    run = shutil.copytree(translator, tmp_path / "run")
    third_newest = checkpoints(run)[-3]
    shutil.copytree(third_newest, third_newest.with_name("step-00000001"))
    assert load(run, average=3).state_dict().keys()
    with pytest.raises(ConfigError, match="has 3 newest checkpoints, of which 4 cannot be"):
        load(run, average=4)


def test_both_stacks_are_inspected_and_of_a_text_the_encoder(sublayer, translator):
    assert "whose blocks read two texts" in sublayer("inspect", "layers", translator).refusal()
    layers = inspected(sublayer, "splitting", translator)["layers"]
    stacks = [(layer["stack"], layer["layer"]) for layer in layers]
    assert stacks == [("encoder", 1), ("decoder", 1)]
    of_text = inspected(sublayer, "splitting", translator, "--path", translator.parent / "a.en")
    assert [layer["stack"] for layer in of_text["layers"]] == ["encoder"]
    assert of_text["tokens"] > 300
    assert 1 < inspected(sublayer, "splitting", translator, "--tokens", 20)["tokens"] < 40


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_a_suite_is_that_of_the_translations(
    translator, translate, sublayer, tmp_path, lowercase
):
    write_lines(tmp_path / "en.txt", ENGLISH)
    write_lines(tmp_path / "de.txt", GERMAN)
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'[[pairs]]\nsource = "{tmp_path}/en.txt"\ntarget = "{tmp_path}/de.txt"\n'
        f'name = "en-de"\nlowercase = {str(lowercase).lower()}\n'
    )
    found = sublayer("evaluate", translator, "--suite", suite, "--json").found()
    cells = {row["name"]: row["cells"]["bleu/en-de"] for row in found["rows"]}
    printed = translate(translator, [f"{line}\n".encode() for line in ENGLISH]).out.splitlines()
    for name, lines in ((translator.name, printed), ("source copied", ENGLISH)):
        score = sacrebleu.corpus_bleu(lines, [GERMAN], lowercase=lowercase).score
        assert cells[name]["mean"] == pytest.approx(score)
    assert cells[translator.name]["mean"] > 0 < cells[translator.name]["error"]
