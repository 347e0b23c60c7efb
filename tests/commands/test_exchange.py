"""``sublayer import`` and ``sublayer export`` exchange models with transformers and show the certificate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.bundles import write_bundle
from tests.interop.encoders import MAX_LEN, VOCAB_SIZE, random_encoder
from tests.interop.fairseq_checkpoints import Shape, as_fork, draw, save_fork, settings
from tests.interop.test_albert_tf import released

Sublayer = Callable[..., tuple[int, str, str]]


def test_a_run_goes_out_and_comes_back(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    code, out, err = sublayer("export", trained, "--to", "huggingface", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.startswith(f"exported: {tmp_path / 'out'}, with its tokenizer\nlargest difference of logits from ")
    code, out, err = sublayer("import", "huggingface", tmp_path / "out", "--out", tmp_path / "back", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["certificate"] == json.loads((tmp_path / "back" / "certificate.json").read_text())
    assert found["certificate"]["largest_difference"]["float64"] < 1e-9
    text = trained.parent / "text.txt"
    losses = [
        json.loads(sublayer("evaluate", model, "--path", text, "--json")[1])["loss"]
        for model in (trained, tmp_path / "back")
    ]
    assert losses[0] == losses[1]


def test_an_encoder_comes_in_and_goes_out(sublayer: Sublayer, tmp_path: Path) -> None:
    sizes = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7, "num_hidden_layers": 2}
    sizes |= {"vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_LEN, "pad_token_id": None}
    random_encoder("bert", **sizes).save_pretrained(tmp_path / "bert")
    code, out, err = sublayer("import", "huggingface", tmp_path / "bert", "--out", tmp_path / "model")
    assert code == 0
    first, second = out.splitlines()
    assert first == f"model: {tmp_path / 'model'}, without a tokenizer: the folder has none"
    assert second.startswith("largest difference of logits from transformers ")
    code, out, err = sublayer("export", tmp_path / "model", "--to", "huggingface", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.endswith(f"next: transformers.BertForPreTraining.from_pretrained({str(tmp_path / 'out')!r})\n")


def test_the_release_of_albert_comes_in(sublayer: Sublayer, tmp_path: Path) -> None:
    sizes = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7, "num_hidden_layers": 2}
    sizes |= {"vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_LEN, "embedding_size": 4}
    weights = released(random_encoder("albert", **sizes, pad_token_id=None))
    write_bundle(tmp_path / "model.ckpt-best", weights)
    (tmp_path / "albert_config.json").write_text(json.dumps(sizes))
    code, out, err = sublayer("import", "albert-tf", tmp_path / "model.ckpt-best", "--out", tmp_path / "model")
    n_left_out = sum(name.endswith(("adam_m", "adam_v", "global_step")) for name in weights)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"model: {tmp_path / 'model'}, without a tokenizer: the folder has none",
        "not checked against transformers: it reads no checkpoints of TensorFlow",
        f"left out: {n_left_out} tensors of an optimizer",
    ]


def test_a_checkpoint_of_macaron_net_comes_in(sublayer: Sublayer, tmp_path: Path) -> None:
    shape = Shape(is_macaron=True)
    save_fork(tmp_path / "checkpoint_best.pt", as_fork(draw(shape)), settings(shape))
    code, out, err = sublayer("import", "fairseq", tmp_path / "checkpoint_best.pt", "--out", tmp_path / "model")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"model: {tmp_path / 'model'}, without a tokenizer: its codes (codes, code, bpecodes, *.codes) and its "
        "dictionary (dict.de.txt) are not both beside it",
        "not checked against transformers: no class of it has model.block = macaron",
        "left out: 6 tensors of an optimizer; decoder.embed_positions._float_tensor, decoder.version, "
        "encoder.embed_positions._float_tensor, encoder.version (no weights); decoder.embed_tokens.weight "
        "(equal to the token table)",
    ]


def test_help_names_the_systems(sublayer: Sublayer) -> None:
    for command, names in (
        ("import", ("huggingface", "albert-tf", "fairseq", "BERT")),
        ("export", ("huggingface", "ALBERT")),
    ):
        code, out, _ = sublayer(command, "--help")
        assert code == 0
        assert all(name in out for name in names)


def test_an_import_without_a_place_goes_to_runs(
    sublayer: Sublayer, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sublayer("export", trained, tmp_path / "mine")
    assert sublayer("import", "huggingface", tmp_path / "mine")[0] == 0
    assert (tmp_path / "runs" / "mine" / "model.safetensors").is_file()


def test_what_cannot_be_exchanged_is_refused_in_a_line(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    for words, message in (
        (("import", "huggingface", tmp_path / "nowhere", "--out", tmp_path / "new"), "is not a folder"),
        (
            ("import", "huggingface", trained / "model", "--out", tmp_path / "new"),
            "only 'gpt2', 'bert'",
        ),
        (("import", "albert-tf", tmp_path / "nowhere", "--out", tmp_path / "new"), "is not a TensorFlow checkpoint"),
        (("import", "fairseq", tmp_path / "nowhere", "--out", tmp_path / "new"), "is not a checkpoint of fairseq"),
        (("import", "elsewhere", trained, "--out", tmp_path / "new"), "elsewhere"),
        (("export", trained, "--to", "elsewhere", tmp_path / "new"), "elsewhere"),
        (("export", trained, "--to", "huggingface", trained), "nothing is overwritten"),
        (("export", tmp_path / "nowhere", "--to", "huggingface", tmp_path / "new"), "does not exist"),
    ):
        code, out, err = sublayer(*words)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
