"""``sublayer generate``: a text goes on with a prompt, or fills its gaps."""

import shutil

import pytest

from sublayer import cli
from sublayer.commands.generate import continuation
from sublayer.commands.generate.continuation import Continuation
from sublayer.data.tokenizers.characters import ByteTokenizer
from tests.commands.conftest import SMALL


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
def test_a_text_is_shown_without_parts_of_characters_and_stops(monkeypatch, tokens, stops, shown):
    parts = []
    monkeypatch.setattr(continuation, "write_result", parts.append)
    tokenizer = ByteTokenizer()
    tokenizer.end_id = 256  # as of a token that ends a document
    growing = Continuation(tokenizer, stops, is_shown=True)
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
    said = [line for line in sublayer(*words).err.splitlines() if "for no gap" in line]
    assert said == [f"written for no gap, and left out: {text!r}" for text in unplaced]
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
    (" a ".join(f"<extra_id_{k}>" for k in range(13)), "", "13 gaps, and the model's tokenizer"),
    ("The <extra_id_0> \N{CJK UNIFIED IDEOGRAPH-6F22}", "", "does not know"),
    ("the " * 40 + PROMPT, "", "more than the 32 that the model reads: shorten"),
    (PROMPT, "--tokens 5000", "--tokens 5000 is more than the model writes"),
    (PROMPT, "--window exact", "--window exact is of decoders"),
    (PROMPT, "--stop x", "--stop 'x' is of decoders"),
    (PROMPT, "--beam 2 --top-p 0.5", "--beam 2 finds the most probable, and"),
    (PROMPT, "--beam 2 --batch 3", "--batch 3 is of what is drawn"),
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
