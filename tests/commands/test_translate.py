"""``sublayer translate`` and what ``evaluate`` says of a translator."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.interop.huggingface import read_huggingface
from sublayer.load import load
from sublayer.train.metrics import METRICS, read_metrics
from tests.translators import train_translator

Sublayer = Callable[..., tuple[int, str, str]]

WORDS = {"a": "ein", "cat": "Kater", "dog": "Hund", "sees": "sieht", "the": "der", "and": "und", "runs": "rennt"}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    names = list(WORDS)
    lines = [[names[(i * j + i // 7) % 7] for j in range(1, 2 + i % 6)] for i in range(240)]
    (folder / "a.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / "a.de").write_text("".join(" ".join(WORDS[word] for word in line) + "\n" for line in lines))
    return train_translator(
        folder,
        data__lowercase=False,
        data__vocab_size=60,
        train__evaluate_steps=25,
        train__best_by="bleu",
        train__keep_checkpoints=3,
    )


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(text: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: False))

    return give


def test_lines_are_translated_in_order(sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]) -> None:
    lines = ["the cat sees a dog", "", "a dog runs", "the dog and the cat", "cat"]
    given("\n".join(lines).encode())
    code, out, err = sublayer("translate", translator)
    assert (code, err) == (0, "")
    assert out.split("\n")[:-1][1] == "" and len(out.splitlines()) == 5
    alone = []
    for line in lines:
        given(f"{line}\n".encode())
        alone.append(sublayer("translate", translator, "--batch", 1)[1].removesuffix("\n"))
    assert out.splitlines() == alone
    given("\n".join(lines).encode())
    assert sublayer("translate", translator, "--window", 2, "--batch", 2)[1] == out


def test_several_translations_come_with_scores(
    sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]
) -> None:
    given(b"the cat\n\na dog\n")
    code, out, _ = sublayer("translate", translator, "--n-best", 3, "--beam", 4)
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and [row[0] for row in rows] == ["1"] * 3 + ["3"] * 3
    assert all(float(one[1]) >= float(other[1]) for one, other in ((rows[0], rows[1]), (rows[1], rows[2])))
    given(b"the cat\n")
    assert rows[0][2] == sublayer("translate", translator, "--beam", 4)[1].strip()


def test_json_holds_what_is_printed(sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]) -> None:
    given(b"the cat\n\na dog\n")
    code, out, _ = sublayer("translate", translator, "--json")
    found = json.loads(out)
    given(b"the cat\n\na dog\n")
    printed = sublayer("translate", translator)[1].splitlines()
    assert code == 0 and (found["lines"], found["too_long"]) == (3, 0)
    texts = [each["translations"][0]["text"] if each["translations"] else "" for each in found["translations"]]
    assert texts == printed


def test_a_line_that_is_too_long_is_empty_and_said(
    sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]
) -> None:
    given(b"a cat\n" + b"a cat and " * 40 + b"\na dog\n")
    code, out, err = sublayer("translate", translator)
    lines = out.split("\n")
    assert code == 0 and lines[1] == "" and lines[0] and lines[2]
    assert "line 2: 121 tokens are more than the 32 that the model reads" in err
    assert "1 of 3 lines were too long and are empty" in err


def test_what_the_vocabulary_does_not_know_is_counted(
    sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]
) -> None:
    given("a cat\na Ж dog ЖЖ\n".encode())
    code, out, err = sublayer("translate", translator)
    assert code == 0 and len(out.splitlines()) == 2
    # Two ends, and of words what the vocabulary makes of them: the three letters are none of its pieces.
    tokenizer = load(translator).tokenizer
    n_tokens = 2 + sum(len(ids) for ids in tokenizer.encode_source(["a cat", "a Ж dog ЖЖ"]))
    assert err.strip() == f"3 of {n_tokens} tokens of the input are unknown to the vocabulary"
    given("Ж\n".encode())
    assert json.loads(sublayer("translate", translator, "--json")[1])["unknown_tokens"] == 1


def test_bytes_that_are_no_text_are_named_and_what_is_before_them_translated(
    sublayer: Sublayer, translator: Path, given: Callable[[bytes], None]
) -> None:
    given(b"a cat\nthe dog\n")
    whole = sublayer("translate", translator)[1]
    given(b"\xef\xbb\xbfa cat\nthe dog\n\xff\na dog\n")
    code, out, err = sublayer("translate", translator)
    message = "standard input, line 3: byte 0xff is not UTF-8: mend or convert it; the 2 lines before it are translated"
    assert (code, out, err.strip()) == (2, whole, f"error: {message}")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interruption_leaves_what_was_translated_and_says_what_is_left(
    sublayer: Sublayer, translator: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def lines() -> Iterator[bytes]:
        yield from (b"a cat\n", b"the dog\n", b"a \xd0\x96\n", b"cat\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=lines(), isatty=lambda: False))
    code, out, err = sublayer("translate", translator, "--window", 3, *(["--json"] if as_json else []))
    assert code == 130
    assert "interrupted after 3 lines: the input from line 4 on is left" in err
    assert "tokens of the input are unknown to the vocabulary" in err
    if as_json:
        found = json.loads(out)
        assert (found["lines"], len(found["translations"])) == (3, 3)
    else:
        assert len(out.splitlines()) == 3


def test_a_run_is_scored_on_its_own_splits(sublayer: Sublayer, translator: Path) -> None:
    code, out, err = sublayer("evaluate", translator, "--split", "test", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert all(30 < found[name] <= 100 for name in ("bleu", "sacrebleu", "chrf"))
    assert found["signature"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:")
    assert len(found["translations"]) == found["lines"]
    assert sublayer("evaluate", translator, "--split", "test")[1].splitlines()[-1].startswith("chrF of text")
    out = sublayer("evaluate", translator, "--split", "test", "--compounds")[1]
    assert "BLEU, compounds split" in out and out.splitlines()[-1].startswith("with compounds split BLEU is inflated")


def test_a_run_is_tested_against_another_and_against_a_file(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    earliest = sorted((translator / "checkpoints").glob("step-*"))[0]
    code, out, err = sublayer("evaluate", translator, "--split", "test", "--against", earliest, "--json")
    assert code == 0, err
    found = json.loads(out)
    alone = json.loads(sublayer("evaluate", earliest, "--split", "test", "--json")[1])
    for name in ("bleu", "sacrebleu", "chrf"):
        paired = found["against"]["measures"][name]
        assert (paired["value"], paired["other"]) == (pytest.approx(found[name]), pytest.approx(alone[name]))
        assert 0 <= paired["p_bootstrap"] <= 1 and 0 < paired["p_randomisation"] <= 1
    theirs = tmp_path / "theirs.de"
    theirs.write_text("".join(f"{text}\n" for text in alone["translations"]))
    paired = found["against"]["measures"]
    found = json.loads(sublayer("evaluate", translator, "--split", "test", "--against", theirs, "--json")[1])
    assert found["against"]["measures"] == {name: paired[name] for name in ("sacrebleu", "chrf")}
    out = sublayer("evaluate", translator, "--split", "test", "--against", theirs)[1]
    assert f"against {theirs}" in out and "p, randomisation" in out


def test_what_cannot_be_compared_is_refused(sublayer: Sublayer, translator: Path, tmp_path: Path) -> None:
    n_lines = json.loads(sublayer("evaluate", translator, "--split", "test", "--json")[1])["lines"]
    short = tmp_path / "short.de"
    short.write_text("ein Hund\n" * 3)
    code, _, err = sublayer("evaluate", translator, "--split", "test", "--against", short)
    assert code == 2 and f"{short} has 3 lines, the split has {n_lines}: give a translation of each line" in err
    short.write_bytes(b"ein\n\xff\n")
    code, _, err = sublayer("evaluate", translator, "--split", "test", "--against", short)
    assert code == 2 and f"{short}, line 2: byte 0xff is not UTF-8" in err
    code, _, err = sublayer("evaluate", translator, "--against", tmp_path / "none")
    assert code == 2 and "none does not exist" in err


def test_the_best_checkpoint_is_that_of_the_best_greedy_translations(sublayer: Sublayer, translator: Path) -> None:
    lines = [line for line in read_metrics(translator / METRICS) if line["kind"] == "valid"]
    bleu = [line["bleu"] for line in lines]
    best = json.loads((translator / "record.json").read_text())["valid"]
    assert best["step"] == lines[bleu.index(max(bleu))]["step"] and best["bleu"] == max(bleu) > 0
    options = ("--beam", 1, "--longest-share", 2, "--longest-more", 10, "--split", "valid", "--json")
    assert json.loads(sublayer("evaluate", translator, *options)[1])["bleu"] == pytest.approx(max(bleu), abs=1e-9)


def test_the_newest_checkpoints_are_averaged(sublayer: Sublayer, translator: Path, tmp_path: Path) -> None:
    parts = [load(path) for path in sorted((translator / "checkpoints").glob("step-*"))]
    averaged = load(translator, average=len(parts))
    for name, value in averaged.state_dict().items():
        mean = sum(part.state_dict()[name].double() for part in parts) / len(parts)
        assert (value - mean).abs().max() < 1e-6
    for command in (("evaluate", translator), ("export", translator, tmp_path / "out")):
        code, _, err = sublayer(*command, "--average", 9)
        assert code == 2 and "of which 9 cannot be averaged" in err


def test_a_best_checkpoint_that_is_old_is_not_averaged(translator: Path, tmp_path: Path) -> None:
    shutil.copytree(translator, tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-3:]
    shutil.copytree(newest[0], newest[0].with_name("step-00000001"))
    assert load(tmp_path / "run", average=3).state_dict().keys()
    with pytest.raises(ConfigError, match="has 3 newest checkpoint"):
        load(tmp_path / "run", average=4)


def test_what_is_exported_may_be_averaged(sublayer: Sublayer, translator: Path, tmp_path: Path) -> None:
    assert sublayer("export", translator, tmp_path / "one")[0] == 0
    assert sublayer("export", translator, tmp_path / "mean", "--average", 2)[0] == 0
    averaged = load(translator, average=2).state_dict()
    one, mean = (read_huggingface(tmp_path / name).state_dict() for name in ("one", "mean"))
    assert all(torch.equal(mean[name], value) for name, value in averaged.items())
    assert any(not torch.equal(one[name], value) for name, value in averaged.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--n-best", 3, "--beam", 2), "--n-best 3 is more than the 2 hypotheses of --beam"),
        (("--longest-more", "nan"), "--longest-more"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    sublayer: Sublayer, translator: Path, words: tuple[object, ...], message: str
) -> None:
    code, _, err = sublayer("translate", translator, *words)
    assert code == 2 and message in err


def test_what_is_no_translator_is_refused(sublayer: Sublayer, trained: Path, translator: Path) -> None:
    assert "whose blocks read two texts" in sublayer("inspect", "layers", translator)[2]
    layers = json.loads(sublayer("inspect", "splitting", translator, "--json")[1])["runs"][0]["layers"]
    assert [(each["stack"], each["layer"]) for each in layers] == [("encoder", 1), ("decoder", 1)]
    code, out, _ = sublayer("inspect", "splitting", translator, "--path", translator.parent / "a.en", "--json")
    other = json.loads(out)["runs"][0]
    assert code == 0 and [each["stack"] for each in other["layers"]] == ["encoder"] and other["tokens"] > 300
    few = json.loads(sublayer("inspect", "splitting", translator, "--tokens", 20, "--json")[1])["runs"][0]
    assert 1 < few["tokens"] < 40
    (translator.parent / "empty").write_text("\n")
    code, _, err = sublayer("inspect", "splitting", translator, "--path", translator.parent / "empty")
    assert code == 2 and "empty has no line of 1 to 31 tokens" in err
    assert "translates nothing" in sublayer("translate", trained)[2]
    assert "--beam and its companions are of translators" in sublayer("evaluate", trained, "--beam", 3)[2]
    assert "a split of its own text" in sublayer("evaluate", translator, "--stride", 3)[2]
