"""GPT-1's released arrays and transformers' class of it: logits, tokenizers, refusals."""

import json
import os
import pickle
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from sublayer.api.run import load
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.interop.gpt import SHAPES, import_gpt1, read_gpt1
from sublayer.interop.huggingface import export_huggingface, import_huggingface
from sublayer.model.transformer import build
from sublayer.text_model import TextModel
from tests.interop.folders import check_refused, close, opened
from tests.interop.tiny import resolved, tiny

SIZES = N_POSITIONS, VOCAB_SIZE, WIDTH, N_LAYERS = 7, 11, 24, 2
N_HEADS, PIECE = 12, "params_3.npy"


def shapes_of(n_positions, vocab_size, width, n_layers):
    """List the shapes in the order of the release (facts of it: positions, tokens, blocks)."""
    n, norm = width, [(width,), (width,)]
    attention = [(1, n, 3 * n), (3 * n,), (1, n, n), (n,)]
    network = [(1, n, 4 * n), (4 * n,), (1, 4 * n, n), (n,)]
    return [(n_positions, n), (vocab_size, n), *[*attention, *norm, *network, *norm] * n_layers]


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(0.0, 0.3, shape) for shape in shapes_of(*SIZES)]


def save(folder, arrays, n_pieces=10):
    folder.mkdir()
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, piece in enumerate(np.array_split(flat, n_pieces)):
        np.save(folder / f"params_{number}.npy", piece)
    (folder / SHAPES).write_text(json.dumps([list(array.shape) for array in arrays]))
    return folder


@torch.inference_mode()
def log_p(arrays, tokens):
    """Compute log-probabilities over tokens and positions, of the states of transformers' class."""
    from transformers import OpenAIGPTConfig, OpenAIGPTModel

    sizes = {"vocab_size": VOCAB_SIZE, "n_positions": N_POSITIONS, "n_embd": WIDTH}
    model = OpenAIGPTModel(OpenAIGPTConfig(**sizes, n_layer=N_LAYERS, n_head=N_HEADS)).double()
    parts = ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    blocks = product(range(N_LAYERS), parts, ("weight", "bias"))
    names = ["positions_embed.weight", "tokens_embed.weight"]
    names += [f"h.{layer}.{part}.{kind}" for layer, part, kind in blocks]
    positions, words, *rest = (torch.from_numpy(array).squeeze(0) for array in arrays)
    model.load_state_dict(dict(zip(names, [positions, words, *rest], strict=True)))
    states = model.eval()(torch.tensor([tokens])).last_hidden_state[0]
    return (states @ torch.cat([words, positions]).T).log_softmax(-1)


def test_a_release_has_the_log_probabilities_of_its_class_and_of_positions(tmp_path):
    arrays, tokens = draw(), [3, 10, 0, 3, 7, 5]
    folder = save(tmp_path / "released", arrays)
    certificate = import_gpt1(folder, tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    model = load(tmp_path / "ours")
    config = model.config
    assert (config.softmax, config.dropout_embedding_of, config.dropout) == ("all", "matrix", 0.1)
    assert (config.norm_order, config.final_norm, config.norm_eps) == ("post", "none", 1e-5)
    expected = log_p(arrays, tokens)
    for each in (model, read_gpt1(save(tmp_path / "one", arrays, n_pieces=1))[0].model):
        with torch.inference_mode():
            logits = each.double()(torch.tensor([tokens])).logits[0]
        close(logits.log_softmax(-1), expected)


def test_the_tokenizer_beside_the_arrays_comes_along_or_is_of_another_model(tmp_path):
    pieces = ["<unk>", *"aeht", *(f"{letter}</w>" for letter in "aeht"), "th", "the</w>"]
    vocabulary = json.dumps({piece: number for number, piece in enumerate(pieces)})
    arrays = [np.zeros(each) for each in shapes_of(3, 5, 24, 1)]
    folder, other = save(tmp_path / "released", draw()), save(tmp_path / "other", arrays)
    for each in (folder, other):
        (each / "encoder_bpe_40000.json").write_text(vocabulary)
        (each / "vocab_40000.bpe").write_text("#version: 0.2\nt h\nth e</w>\n")
    assert "tokenizer" not in import_gpt1(folder, tmp_path / "ours")
    ids = load(tmp_path / "ours").tokenizer.encode(b"The hat")
    assert [pieces[number] for number in ids] == ["the</w>", "h", "a", "t</w>"]
    check_refused(other, "has 11 ids, but the model's vocab_size is 5", by=import_gpt1)
    (other / "vocab_40000.bpe").unlink()
    check_refused(other, "lacks vocab_40000.bpe", DataError, by=import_gpt1)


def piece(array):
    return lambda folder: np.save(folder / PIECE, array, allow_pickle=True)


def shapes(content, number=None):
    if number is not None:
        listed = shapes_of(*SIZES)
        content = [*listed[:number], content, *listed[number + 1 :]]
    return lambda folder: (folder / SHAPES).write_text(json.dumps(content))


def missing(name):
    return lambda folder: (folder / name).unlink()


def narrow(folder):
    shutil.rmtree(folder)
    save(folder, [np.zeros(shape) for shape in shapes_of(3, 4, 16, 1)])


class Touches:
    """Leaves a file where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("trap"),)


@pytest.mark.parametrize("damage, message", [
    (missing(SHAPES), "has no params_shapes.json"), (narrow, "16, not a multiple of the 12"),
    (missing("params_9.npy"), "params_shapes.json .*: a piece is missing"),
    (shapes({}), "is not a list of shapes"), (shapes([[3, 4]] * 3), r"array 2 has"),
    (shapes("x", 5), "array 5 has shape 'x'"),
    (shapes([True], 5), r"array 5 has shape \[True\]"),
    (shapes([11, 25], 1), r"array 1 has shape \[11, 25\]"), (shapes([[7, 24]]), "a list of shapes"),
    (shapes([24, 72], 14), r"\[24, 72\], but of a width of 24 GPT-1 has \[1, 24, 72\]"),
    (piece(np.zeros((4, 5))), r"params_3.npy has .* shape \[4, 5\]"),
    (piece(np.zeros(9, dtype=np.int64)), "params_3.npy has dtype int64"),
    (piece(np.zeros(9, dtype=np.float32)), "have different dtypes"),
    (lambda folder: (folder / PIECE).write_bytes(pickle.dumps([1.0])), "not an array .*never read"),
    (piece(np.full(1488, np.nan)), "not finite"),
    (piece(np.array([Touches()], dtype=object)), "objects and pickles are never read"),
    (lambda folder: os.truncate(folder / PIECE, 1000), "params_3.npy is damaged"),
])  # fmt: skip
def test_a_folder_that_is_no_release_is_refused(tmp_path, monkeypatch, damage, message):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "released", draw())
    damage(folder)
    check_refused(folder, message, by=import_gpt1)
    assert [*tmp_path.iterdir()] == [folder]


def test_a_vocabulary_beside_its_merges_comes_along_with_the_published_rules(tmp_path):
    pytest.importorskip("ftfy")
    pytest.importorskip("spacy")
    folder = tiny("openai-gpt", vocab_size=40).save(tmp_path / "theirs")
    letters = "adehorstvyn.,'"
    pieces = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>"]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "n't</w>", "\n</w>"])}
    lines = ["#version: 0.2", "t h", "th e</w>", "n 't</w>"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    check_refused(folder, r"vocab.json lacks merges.txt .*: put a vocab", DataError)
    (folder / "merges.txt").write_text("\n".join([*lines, ""]))
    check_refused(folder, r"merges.txt, line 4: 'n' and \"'t</w>\" were", DataError)
    vocabulary["'t</w>"] = 37
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join([*lines[:3], "' t</w>", lines[3], ""]))
    import_huggingface(folder, tmp_path / "ours")
    tokenizer = load(tmp_path / "ours").tokenizer
    assert tokenizer.kind == "gpt1-bpe"
    expected = ["the</w>", "\n</w>", "d", "o</w>", "n't</w>", "<unk>"]
    found = tokenizer.encode("The\n\ndon't \u6f22".encode())
    assert [*found] == [vocabulary[piece] for piece in expected]
    # Published rules are written for no other system: transformers' class would give other ids.
    export_huggingface(trained_model("the text of the text"), tmp_path / "exported")
    names = sorted(path.stem for path in (tmp_path / "exported").iterdir())
    assert names == ["certificate", "config", "generation_config", "model"]


def trained_model(text, **rules):
    tokenizer = train_tokenizer("gpt1-bpe", [text.encode()], merges=9, **rules)
    fields = {"norm_order": "post", "n_heads": 2, "d_model": 8, "n_layers": 1}
    model = build(resolved({**fields, "vocab_size": tokenizer.vocab_size}), seed=0)
    return TextModel(model, tokenizer)


def test_transformers_opens_a_tokenizer_trained_by_its_rules(tmp_path):
    text = "The day, the\nother  day's th\u00e9 (\u6f22) don't\n"
    model = trained_model(text, normalization="transformers")
    export_huggingface(model, tmp_path / "exported")
    for each in (text, "another day, Zo\u00eb!"):
        ids = model.tokenizer.encode(each.encode()).tolist()
        assert opened(tmp_path / "exported")(each)["input_ids"] == ids
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    assert load(tmp_path / "again").tokenizer.fingerprint == model.tokenizer.fingerprint
