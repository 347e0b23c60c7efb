"""``sublayer generate`` and ``translate``: texts that go on, gaps that are filled, translations."""

import io
import json
import re
import shutil
from itertools import cycle

import pytest
import sacrebleu
import tomli_w
import torch
from sentencepiece import SentencePieceTrainer

from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.decode.sample import Continuation
from sublayer.errors import ConfigError
from sublayer.interop.huggingface import read_huggingface
from sublayer.training.log import METRICS, read_metrics
from tests.commands.conftest import SMALL
from tests.commands.results import unwrapped
from tests.commands.translators import sentences, train_translator, write_lines, write_pair


def test_a_text_ends_where_a_stop_begins(sublayer, trained):
    words = ("generate", trained, "--prompt", "The", "--tokens", 60)
    whole = sublayer(*words).out
    stop = whole.rstrip("\n")[20:22]
    end = whole.index(stop, 3)
    assert sublayer(*words, "--stop", stop).out.rstrip("\n") == whole[:end].rstrip("\n")


@pytest.mark.parametrize("tokens, stops, shown", [
    ("aé😀b".encode(), [], ["a", "é", "😀", "b"]), (b"a\xe2\x82b\xf0", [], ["a\ufffdb\ufffd"]),
    (b"one E two END. three", ["NOT", "END"], ["one E two "]),
    (b"one E two END. three", ["END", "D."], ["one E two "]), (b"one EN", ["END"], ["one EN"]),
    ([*b"one", 256, *b"more"], ["stop"], ["one"]),
])  # fmt: skip
def test_a_text_is_shown_without_parts_of_characters_and_stops(tokens, stops, shown):
    parts = []
    tokenizer = ByteTokenizer()
    tokenizer.end_id = 256  # as of a token that ends a document
    growing = Continuation(tokenizer, stops, show=parts.append)
    for token in tokens:
        growing.add(token)
    growing.end()
    assert growing.text == "".join(parts) == "".join(shown)
    assert len(shown) == 1 or parts == shown


PROMPT = "The <extra_id_0> sat on the <extra_id_1>."
DRAWN = ("--batch", 40, "--temperature", 100)
"""So many that some of a model that learned nothing have text in a gap."""
TEXT = "The cat sat on the mat. Another dog ran over the green fields while it rained.\n"
TEXT += "Then a man came to the door, and he said that the weather was fine again.\n"


def span_run(folder, *words):
    (folder / "text.txt").write_text(TEXT * 200)
    small = (*SMALL, "model.d_ff=32", f"data.path={folder}/text.txt", "data.vocab_size=90")
    small += ("data.sentinels=12", "train.steps=2", "train.batch_sequences=2")
    small += ("--out", f"{folder}/run")
    assert cli.main(["train", "t5-mini", *small, *words]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def spans(tmp_path_factory, own_cache):
    return span_run(tmp_path_factory.mktemp("spans"))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory, own_cache):
    return span_run(tmp_path_factory.mktemp("prefix"), "objective.noise=prefix")


def test_gaps_are_filled_greedily_unless_they_are_drawn(sublayer, spans):
    words = ("generate", spans, "--prompt", PROMPT)
    greedy = sublayer(*words).out
    for same in (("--beam", 1), ("--temperature", 0), ("--top-k", 1)):
        assert sublayer(*words, *same).out == greedy
    drawn = sublayer(*words, *DRAWN, "--seed", 3)
    lines = drawn.out.splitlines()
    assert lines[::2] == [f"--- {number}" for number in range(1, 41)]
    assert len(set(lines[1::2])) > 5
    assert sublayer(*words, *DRAWN, "--seed", 3).out == drawn.out
    assert sublayer(*words, *DRAWN, "--seed", 4).out != drawn.out


def test_what_was_written_for_no_gap_is_said(sublayer, spans):
    words = ("generate", spans, "--prompt", PROMPT, *DRAWN)
    found = sublayer(*words, "--json").found()["completions"]
    unplaced = [each["unplaced"] for each in found if each["unplaced"]]
    said = [line for line in sublayer(*words).err.splitlines() if "outside all gaps" in line]
    assert said == [f"text outside all gaps, left out: {text!r}" for text in unplaced]
    assert said  # so little is learned that some draws begin without a sentinel


def test_tokens_are_those_of_a_target_in_training_unless_given(sublayer, spans, tmp_path):
    drawn = ("generate", spans, "--prompt", PROMPT, "--json", "--batch", 30)
    counts = [each["tokens"] for each in sublayer(*drawn).found()["completions"]]
    # Of 34 tokens, 5 are cut out in 2 spans: with their sentinels 7, and the end.
    assert max(counts) == 7
    given = sublayer(*drawn, "--tokens", 3).found()["completions"]
    assert max(each["tokens"] for each in given) == 3
    alone = shutil.copytree(spans / "model", tmp_path / "alone")
    words = ("generate", alone, *drawn[2:], "--tokens", 3)
    assert sublayer(*words).found()["completions"] == given


def test_a_prefix_model_goes_on_with_its_prompt(sublayer, prefix):
    words = ("generate", prefix, "--prompt", "The cat ", "--tokens", 6)
    (found,) = sublayer(*words, "--json").found()["completions"]
    (gap,) = found["gaps"]
    assert found["text"].startswith("The cat") and found["text"].endswith(gap["text"])
    assert gap["tokens"] == found["tokens"] <= 6
    assert gap["score"] >= found["score"]  # without the end
    assert sublayer(*words).out == f"{found['text']}\n"


@pytest.mark.parametrize("prompt, options, message", [
    ("The cat", "", "has no gap"), ("A <extra_id_1>", "", "number gaps in their order"),
    (" a ".join(f"<extra_id_{k}>" for k in range(13)), "", "13 gaps, but the model's tokenizer"),
    ("The <extra_id_0> \N{CJK UNIFIED IDEOGRAPH-6F22}", "", "which is unknown to"),
    ("the " * 40 + PROMPT, "", "more than the model's context of 32: shorten"),
    (PROMPT, "--tokens 5000", "--tokens 5000 exceeds the"),
    (PROMPT, "--window exact", "--window exact needs a decoder"),
    (PROMPT, "--stop x", "--stop 'x' needs a decoder"),
    (PROMPT, "--beam 2 --top-p 0.5", "--beam 2 finds the most probable text, but"),
    (PROMPT, "--beam 2 --batch 3", "--batch 3 samples tokens"),
    (PROMPT, "--batch 3 --temperature 0", "the same text 3 times"),
])  # fmt: skip
def test_a_prompt_that_cannot_be_filled_is_refused(sublayer, spans, prompt, options, message):
    assert message in sublayer("generate", spans, "--prompt", prompt, *options.split()).refusal()


def test_both_stacks_of_models_that_fill_gaps_are_inspected(sublayer, spans, prefix, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("She read the book twice, and then she slept.")
    for run in (spans, prefix):
        for options in ((), ("--path", text)):
            found = sublayer("inspect", "splitting", run, *options, "--json").found()
            layers = found["runs"][0]["layers"]
            assert [layer["stack"] for layer in layers] == ["encoder", "decoder"]
            found = sublayer("inspect", "paths", run, *options, "--tokens", 99, "--json").found()
            encoder, decoder = found["runs"][0]["stacks"]
            gaps = [token for token in encoder["tokens"] if token.startswith("<extra_id_")]
            assert bool(gaps) == (run == spans)
            assert [token for token in decoder["tokens"] if token in gaps] == gaps


MEASURES = ("bleu", "sacrebleu", "chrf")
ENGLISH = ["the cat sees a dog", "a dog runs", "the dog and the cat", "a cat sees the Dog and runs"]
GERMAN = ["der Kater sieht ein Hund", "ein Hund rennt", "der Kater", "ein Kater sieht der hund"]


def evaluated(sublayer, run, *options):
    return sublayer("evaluate", run, "--split", "test", *options, "--json").found()


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step-*"))


def test_lines_are_translated_in_order(translate, translator, sublayer):
    lines = ["the cat sees a dog", "", "a dog runs", "the dog and the cat", "cat"]
    text = "\n".join(lines).encode()
    out = translate(translator, text).shown()
    alone = [translate(translator, f"{line}\n".encode(), "--batch", 1).out for line in lines]
    assert "".join(alone) == out
    assert alone[1] == "\n"
    assert translate(translator, text, "--window", 2, "--batch", 2).out == out
    refused = sublayer("generate", translator, "--prompt", "a cat").refusal()
    assert "is a translator, it does not complete text" in refused
    code, out, err = translate(translator, b"a cat\n" + b"a cat and " * 40 + b"\na dog\n")
    assert (code, [bool(line) for line in out.split("\n")]) == (0, [True, False, True, False])
    assert "line 2 has 121 tokens, more than the model's 32" in err


def test_bytes_that_are_no_text_are_named_behind_translated_lines(translate, translator):
    whole = translate(translator, b"a cat\nthe dog\n").out
    code, out, err = translate(translator, b"\xef\xbb\xbfa cat\nthe dog\n\xff\na dog\n")
    assert (code, out) == (2, whole)
    assert "standard input, line 3: byte 0xff is not UTF-8" in err
    assert "translated before it: 2 lines" in err


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interruption_leaves_the_lines_that_were_translated(translate, translator, as_json):
    def lines():
        yield from (b"a cat\n", b"the dog\n", "a Ж\n".encode(), b"cat\n")
        raise KeyboardInterrupt

    code, out, err = translate(translator, lines(), "--window", 3, *["--json"] * as_json)
    translated = json.loads(out)["translations"] if as_json else out.splitlines()
    assert (code, len(translated)) == (130, 3)
    assert "interrupted after 3 lines: the input from line 4 on is untranslated" in err
    assert "unknown to the vocabulary: " in err


def test_a_run_is_scored_on_its_splits(sublayer, translator):
    found = evaluated(sublayer, translator)
    assert all(30 < found[name] <= 100 for name in MEASURES)
    words = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
    assert found["signature"]["bleu"].startswith(words)
    assert len(found["translations"]) == found["lines"]
    shown = sublayer("evaluate", translator, "--compounds").out
    assert re.search(r"^chrF of text ", shown, re.MULTILINE)
    assert shown.splitlines()[-1].startswith("BLEU with compounds split is inflated")


def test_a_run_is_tested_against_another_and_against_a_file(sublayer, translator, tmp_path):
    earliest = checkpoints(translator)[0]
    found = evaluated(sublayer, translator, "--against", earliest)
    alone, measures = evaluated(sublayer, earliest), found["against"]["measures"]
    for name in MEASURES:
        paired, expected = measures[name], pytest.approx((found[name], alone[name]))
        assert (paired["value"], paired["other"]) == expected
        assert 0 < paired["p_randomisation"] <= 1 and "p_bootstrap" not in paired
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
    exported = read_huggingface(tmp_path / "mean").model.state_dict()
    assert all(torch.equal(exported[name], value) for name, value in averaged.items())
    run = shutil.copytree(translator, tmp_path / "run")
    third_newest = checkpoints(run)[-3]
    shutil.copytree(third_newest, third_newest.with_name("step-00000001"))
    assert load(run, average=3).state_dict().keys()
    with pytest.raises(ConfigError, match="has 3 newest checkpoints and cannot average 4"):
        load(run, average=4)


def test_both_stacks_are_inspected_and_of_a_text_the_encoder(sublayer, translator):
    def split(*options):
        words = ("inspect", "splitting", translator, *options, "--json")
        [found] = sublayer(*words).found()["runs"]
        return [(layer["stack"], layer["layer"]) for layer in found["layers"]], found["tokens"]

    assert "decoder's blocks read two texts" in sublayer("inspect", "layers", translator).refusal()
    assert split()[0] == [("encoder", 1), ("decoder", 1)]
    layers, n_tokens = split("--path", translator.parent / "a.en")
    assert (layers, n_tokens > 300) == ([("encoder", 1)], True)
    assert 1 < split("--tokens", 20)[1] < 40


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_a_suite(translator, translate, sublayer, tmp_path, lowercase):
    write_lines(tmp_path / "en.txt", ENGLISH)
    write_lines(tmp_path / "de.txt", GERMAN)
    suite = tmp_path / "suite.toml"
    pair = {"source": f"{tmp_path}/en.txt", "target": f"{tmp_path}/de.txt", "name": "en-de"}
    suite.write_text(tomli_w.dumps({"pairs": [{**pair, "lowercase": lowercase}]}))
    found = sublayer("evaluate", translator, "--suite", suite, "--json").found()
    cells = {row["name"]: row["cells"]["bleu/en-de"] for row in found["rows"]}
    printed = translate(translator, [f"{line}\n".encode() for line in ENGLISH]).out.splitlines()
    for name, lines in ((translator.name, printed), ("source copied", ENGLISH)):
        score = sacrebleu.corpus_bleu(lines, [GERMAN], lowercase=lowercase).score
        assert cells[name]["mean"] == pytest.approx(score)
    assert cells[translator.name]["mean"] > 0 < cells[translator.name]["error"]


WORDS = ("A cat dog sees THE and bird", "Ein Kätzchen Hündchen hört das und Vögelchen")
WORDS = [each.split() for each in WORDS]
EN, DE = ([f"{line} ." for line in sentences(words, 280, longest=5)] for words in WORDS)
MARKED_EN, MARKED_DE = (
    [line + mark for line, mark in zip(sentences(words, 300, longest=4), cycle("!."), strict=False)]
    for words in WORDS
)
POST = {"model__norm_order": "post", "model__sinusoids": "marian"}
POST |= {"model__first_position": 0, "model__decoder_start": "pad"}


@pytest.fixture(scope="module", params=[{}, POST], ids=["pre", "post"])
def exchanged(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, EN, DE)
    return train_translator(folder, data__vocab_size=80, **request.param)


def test_transformers_writes_the_same_words(sublayer, translate, exchanged, tmp_path):
    import transformers

    there, back = tmp_path / "out", tmp_path / "back"

    def translated(model):
        text = "".join(f"{line}\n" for line in EN[:40]).encode()
        return translate(model, text, "--beam", 1, "--longest-more", 20).shown().splitlines()

    exported = sublayer("export", exchanged, "--to", "huggingface", there).shown()
    assert exported.startswith(f"exported: {there}, with its tokenizer\n")
    ours = translated(exchanged)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(there)
    tokenizer = transformers.AutoTokenizer.from_pretrained(there)
    inputs = tokenizer(EN[:40], return_tensors="pt", padding=True)
    limits = {"max_new_tokens": 21, "min_new_tokens": 1}
    ids = model.generate(**inputs, num_beams=1, do_sample=False, **limits)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert [unwrapped(text) for text in texts] == ours
    pairs = zip(ours, DE[:40], strict=True)
    assert sum(line == target.lower() for line, target in pairs) > 20
    out = sublayer("import", "huggingface", there, "--out", back).out
    assert out.startswith(f"model: {back}, with its tokenizer\n")
    assert translated(back) == ours
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (there / name).unlink()
    assert sublayer("import", "huggingface", there, "--out", tmp_path / "bare").code == 0
    refusal = sublayer("translate", tmp_path / "bare").refusal()
    assert refusal.startswith("error: the model has no bilingual tokenizer")


@pytest.mark.parametrize("vocabulary", ["trained here", "trained elsewhere"])
def test_text_is_translated_to_text(sublayer, translate, tmp_path, vocabulary):
    write_pair(tmp_path, MARKED_EN, MARKED_DE)
    settings = {"data__tokenizer": "unigram", "data__vocab_size": 90}
    if vocabulary == "trained elsewhere":
        file = io.BytesIO()
        rules = {"model_type": "bpe", "vocab_size": 110, "hard_vocab_limit": False}
        rules |= {"sentence_iterator": iter([*MARKED_EN, *MARKED_DE]), "minloglevel": 2}
        SentencePieceTrainer.train(model_writer=file, **rules)
        (tmp_path / "joint.model").write_bytes(file.getvalue())
        settings = {"data__tokenizer": str(tmp_path / "joint.model")}
    run = train_translator(tmp_path, data__lowercase=False, data__context=64, **settings)
    text = "".join(f"{line}\n" for line in MARKED_EN[:40])
    lines = translate(run, text.encode()).shown().splitlines()
    assert sum(line == target for line, target in zip(lines, MARKED_DE, strict=False)) >= 20
    assert all(line[-1] in "!." and line[-2] not in " !." for line in lines)
    found = evaluated(sublayer, run)
    assert found["signature"]["bleu"].endswith("|words:spaces")
    assert found["sacrebleu"] > 30
