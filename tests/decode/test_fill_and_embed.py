"""Fillings of masks and vectors of texts, against transformers; beams of decoders by hand."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.api.run import load
from sublayer.decode.beam import BeamSettings, search_behind
from sublayer.errors import ConfigError
from sublayer.evaluation.vectors import describe_unread, embed_texts
from sublayer.interop.huggingface import import_huggingface
from tests.interop.tiny import tiny

transformers = pytest.importorskip("transformers")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "##s", "sat", "on", "mat", ".", ",", "un", "##able"]
TEXTS = st.lists(st.sampled_from([*WORDS[:2], "cats", "sat", ".", "[MASK]", "dog"]), max_size=14)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A BERT and a GPT-2 of transformers with their tokenizers, and both imported."""
    found, ends = {}, {"bos_token_id": 16, "eos_token_id": 16}
    for name, fields in (("bert", {"vocab_size": 15}), ("gpt2", {"vocab_size": 17, **ends})):
        original = tiny(name, dtype=torch.float32, **fields)
        folder = original.save(tmp_path_factory.mktemp(name))
        if name == "bert":
            (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
            tokenizer = transformers.BertTokenizer.from_pretrained(folder)
        else:
            letters = {letter: n for n, letter in enumerate("thecasonmd.,ublĠ")} | {"</s>": 16}
            (folder / "vocab.json").write_text(json.dumps(letters))
            (folder / "merges.txt").write_text("#version: 0.2\n")
            marks = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "</s>")
            tokenizer = transformers.GPT2Tokenizer.from_pretrained(folder, **marks)
        tokenizer.save_pretrained(folder)
        import_huggingface(folder, folder / "imported")
        found[name] = original.model(), tokenizer, load(folder / "imported")
    return found


@given(TEXTS.map(lambda words: [*words[:6], "[MASK]"][-7:]))
@settings(max_examples=25, deadline=None)
def test_fillings_have_the_probabilities_of_transformers(models, words):
    theirs, tokenizer, ours = models["bert"]
    text = " ".join(words)
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**encoded).prediction_logits[encoded.input_ids == tokenizer.mask_token_id]
    masks = ours.fill(text, 4).masks
    assert len(masks) == len(logits) == words.count("[MASK]")
    for fillings, row in zip(masks, logits.double().softmax(-1), strict=True):
        best = sorted(row[len(SPECIAL) :].tolist(), reverse=True)[:4]
        np.testing.assert_allclose([each.probability for each in fillings], best, rtol=1e-4)
        top = tokenizer.decode([len(SPECIAL) + int(row[len(SPECIAL) :].argmax())])
        assert fillings[0].text.removeprefix("##") == top.removeprefix("##")
        assert "[MASK]" not in fillings[0].completed


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@given(rows=st.lists(TEXTS.filter(bool), min_size=1, max_size=6))
@settings(max_examples=10, deadline=None)
def test_vectors_are_the_pooled_states_of_transformers(models, name, rows):
    theirs, tokenizer, ours = models[name]
    texts = [" ".join(words).replace("[MASK]", "on") for words in rows]
    for pool in ("mean", "last", *(["first"] if name == "bert" else [])):
        found = ours.embed(texts, pool=pool, batch=2)
        for text, vector in zip(texts, found, strict=True):
            encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=16)
            with torch.no_grad():
                states = theirs.base_model(**encoded).last_hidden_state[0]
            expected = {"mean": states.mean(0), "first": states[0], "last": states[-1]}[pool]
            np.testing.assert_allclose(vector, expected, atol=2e-5)
    unit = ours.embed(texts, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)


def test_what_is_not_read_is_said_and_what_a_model_cannot_is_refused(models):
    encoder, decoder = models["bert"][2], models["gpt2"][2]
    found = list(embed_texts(decoder, ["the", "", "the cat " * 9]))
    assert (found[0].is_cut.tolist(), found[0].is_empty.tolist()) == ([0, 0, 1], [0, 1, 0])
    assert not found[0].values[1].any() and len(describe_unread(found, "line")) == 2
    for call, message in (
        (lambda: decoder.embed(["the"], pool="first"), "sees none of the others"),
        (lambda: decoder.fill("the [MASK]"), "cannot fill masks"),
        (lambda: encoder.fill("the cat"), "write \\[MASK\\]"),
        (lambda: encoder.fill("[MASK] " * 20), "shorten it"),
        (lambda: encoder.embed("the cat"), "give a list"),
        (lambda: encoder.embed(["the cat"], batch=-1), "batch -1 is too small"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()


def test_a_beam_behind_prompts_finds_the_best_of_all_texts(models):
    model, end, pad = models["gpt2"][2].model, 3, 4
    prompts, settings = torch.tensor([[1, 2, 5], [7, 8, 2]]), BeamSettings(300, max_length_offset=2)
    found = search_behind(model, prompts, settings, end_id=end, pad_id=pad)

    def log_p(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -1].log_softmax(-1).tolist()

    letters = [each for each in range(17) if each not in (end, pad)]
    for prompt, hypotheses in zip(prompts.tolist(), found, strict=True):
        first, scores = log_p(prompt), {}
        for a in letters:
            second = log_p([*prompt, a])
            scores[a,] = (first[a] + second[end]) / 2
            for b in letters:
                scores[a, b] = (first[a] + second[b] + log_p([*prompt, a, b])[end]) / 3
        best = sorted(scores, key=scores.get, reverse=True)[:5]
        assert [tuple(each.ids.tolist()) for each in hypotheses[:5]] == best
        assert hypotheses[0].score == pytest.approx(scores[best[0]], abs=1e-5)
