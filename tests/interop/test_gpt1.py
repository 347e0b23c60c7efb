"""GPT-1's class of transformers: older versions' files, tokenizers of both text rules."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build
from tests.interop.exported import resolved
from tests.interop.folders import opened
from tests.interop.tiny import ours, tiny


def test_masks_and_positions_of_older_versions_are_left_out(tmp_path: Path) -> None:
    model = tiny("openai-gpt")
    bare = {name.removeprefix("transformer."): each for name, each in model.tensors.items()}
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 16, 16) for layer in range(2)}
    older = {**bare, **masks, "position_ids": torch.arange(16)}
    folder = type(model)(model.name, model.kind, model.fields, older).save(tmp_path / "older")
    again = read_huggingface(model.save(tmp_path / "theirs"))
    assert torch.equal(ours(read_huggingface(folder)), ours(again))


def test_a_vocabulary_beside_its_merges_comes_along_with_the_published_rules(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ftfy")
    pytest.importorskip("spacy")
    folder = tiny("openai-gpt", vocab_size=40).save(tmp_path / "theirs")
    letters = "adehorstvyn.,'"
    pieces = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "n't</w>", "\n</w>"])}
    lines = ["#version: 0.2", "t h", "th e</w>", "n 't</w>"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(DataError, match=r"vocab.json is without merges.txt: .* belong together"):
        import_huggingface(folder, tmp_path / "ours")
    (folder / "merges.txt").write_text("\n".join([*lines, ""]))
    with pytest.raises(DataError, match=r"merges.txt, line 4: 'n' and \"'t</w>\" need"):
        import_huggingface(folder, tmp_path / "ours")
    vocabulary["'t</w>"] = 37
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join([*lines[:3], "' t</w>", lines[3], ""]))
    import_huggingface(folder, tmp_path / "ours")
    tokenizer = load(tmp_path / "ours").tokenizer
    assert tokenizer is not None and tokenizer.kind == "gpt1-bpe"
    expected = ["the</w>", "\n</w>", "d", "o</w>", "n't</w>", "<unk>"]
    found = tokenizer.encode("The\n\ndon't \u6f22".encode()).tolist()
    assert found == [vocabulary[piece] for piece in expected]


def trained_model(text: str, **rules: Any) -> Any:
    """Build a model with a tokenizer trained on a text."""
    tokenizer = train_tokenizer("gpt1-bpe", [text.encode()], merges=9, **rules)
    fields = {"norm_order": "post", "n_heads": 2, "d_model": 8, "n_layers": 1}
    model = build(resolved({**fields, "vocab_size": tokenizer.vocab_size}), seed=0)
    model.tokenizer = tokenizer
    return model


def test_transformers_opens_a_tokenizer_trained_by_its_rules(tmp_path: Path) -> None:
    text = "The day, the\nother  day's th\u00e9 (\u6f22) don't\n"
    model = trained_model(text, normalization="transformers")
    export_huggingface(model, tmp_path / "exported")
    for each in (text, "another day, Zo\u00eb!"):
        ids = model.tokenizer.encode(each.encode()).tolist()
        assert opened(tmp_path / "exported")(each)["input_ids"] == ids
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    assert load(tmp_path / "again").tokenizer.fingerprint == model.tokenizer.fingerprint


def test_published_rules_are_written_for_no_other_system(tmp_path: Path) -> None:
    # transformers has no class with them: its own would give other ids.
    pytest.importorskip("ftfy")
    pytest.importorskip("spacy")
    export_huggingface(trained_model("the text of the text"), tmp_path / "exported")
    names = {path.name for path in (tmp_path / "exported").iterdir()}
    assert names == {"certificate.json", "config.json", "model.safetensors"}
