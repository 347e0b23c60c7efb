"""M2M100 and Marian of transformers, small: the same logits and translations, in and out."""

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.encoder_decoder import EncoderDecoder
from tests.breadth import rows

CLASSES = ["M2M100", "Marian"]
END = 3


def random_fields(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    n_heads, d_ff = draw.choice([1, 2, 4]), draw.randrange(5, 40)
    return {
        "vocab_size": draw.randrange(12, 60),
        "d_model": 2 * n_heads * draw.randrange(2, 6),
        "encoder_layers": draw.randrange(1, 4),
        "decoder_layers": draw.randrange(1, 4),
        "encoder_attention_heads": n_heads,
        "decoder_attention_heads": n_heads,
        "encoder_ffn_dim": d_ff,
        "decoder_ffn_dim": d_ff,
        "max_position_embeddings": draw.randrange(20, 50),
        "scale_embedding": draw.random() < 0.5,
        "activation_function": draw.choice(["relu", "gelu", "silu", "gelu_new"]),
        "dropout": draw.choice([0.0, 0.1]),
    }


@torch.no_grad()
def random_model(name: str, **fields: Any) -> Any:
    """Build a model of transformers with every parameter random, norms and biases included."""
    import transformers

    if name == "M2M100":
        ids = {
            "bos_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": END,
            "decoder_start_token_id": END,
        }
        model: Any = transformers.M2M100ForConditionalGeneration(
            transformers.M2M100Config(**{**ids, **fields})
        )
    else:
        pad = fields["vocab_size"] - 1
        ids = {
            "bos_token_id": 0,
            "pad_token_id": pad,
            "eos_token_id": END,
            "decoder_start_token_id": pad,
        }
        config = transformers.MarianConfig(**{**ids, "forced_eos_token_id": END, **fields})
        model = transformers.MarianMTModel(config)
        model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(1)
    for key, parameter in model.named_parameters():
        if "embed_positions" not in key:
            parameter.normal_(std=0.3, generator=generator)
            if "norm" in key and key.endswith("weight"):
                parameter.add_(1.0)
    return model.double().eval()


def saved(path: Path, name: str, seed: int = 0, **fields: Any) -> tuple[Path, Any]:
    model = random_model(name, **{**random_fields(seed), **fields})
    model.save_pretrained(path / "theirs")
    return path / "theirs", model


@pytest.mark.parametrize(("seed", "name"), rows(product(range(4), CLASSES), 4))
def test_imported_and_exported_models_compute_the_same(
    tmp_path: Path, name: str, seed: int
) -> None:
    folder, _ = saved(tmp_path, name, seed)
    certificate = import_huggingface(folder, tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert certificate["largest_difference"]["float32"] < 1e-5 * max(
        1.0, certificate["largest_logit"]
    )
    certificate = export_huggingface(read_huggingface(folder), tmp_path / "again")
    assert certificate["largest_difference"]["float64"] < 1e-9
    before, after = (load_file(each / "model.safetensors") for each in (folder, tmp_path / "again"))
    assert after.keys() <= before.keys()
    assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert written.get("encoder_layerdrop") == written.get("decoder_layerdrop") == 0.0


@pytest.mark.parametrize("name", CLASSES)
@torch.no_grad()
def test_logits_padded_and_cached_are_the_same(tmp_path: Path, name: str) -> None:
    folder, theirs = saved(tmp_path, name, 6)
    ours = read_huggingface(folder).double()
    assert isinstance(ours, EncoderDecoder)
    pad, generator = theirs.config.pad_token_id, torch.Generator().manual_seed(4)
    drawn = torch.randint(4, theirs.config.vocab_size - 1, (3, 17), generator=generator)
    source, target = drawn[:, :8], drawn[:, 8:]
    mask = torch.arange(8) < torch.tensor([8, 3, 5])[:, None]
    padded = source.masked_fill(~mask, pad)
    memory, kept = ours.encode(padded, mask), Cache(ours.config, 3, 9, torch.float64)
    encoded, past = theirs.get_encoder()(padded, attention_mask=mask.long()), None
    for token in target.split(1, 1):
        rules = {"attention_mask": mask.long(), "past_key_values": past, "use_cache": True}
        output = theirs(encoder_outputs=encoded, decoder_input_ids=token, **rules)
        past = output.past_key_values
        assert (ours.decode(token, memory, kept) - output.logits).abs().max() < 1e-9
    whole = ours(padded, mask, target=target).logits
    expected = theirs(padded, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert (whole - expected).abs().max() < 1e-9


@pytest.mark.parametrize(("order", "is_tied"), [("pre", False), ("post", True)])
def test_an_output_matrix_beside_the_table_is_exported(
    tmp_path: Path, order: str, is_tied: bool
) -> None:
    own = (
        {"norm_order": "post", "sinusoids": "marian"}
        if order == "post"
        else {"sinusoids": "fairseq"}
    )
    own |= {"head_bias": True} if order == "post" else {"first_position": 2}
    given = {
        "n_layers": 1,
        "d_model": 8,
        "n_heads": 2,
        "ffn": "relu",
        "positions": "sinusoidal",
        **own,
    }
    config = ModelConfig(kind="encoder-decoder", tie_embeddings=is_tied, **given)
    model = build(resolve_model(config, vocab_size=30, context=12), seed=3).eval()
    certificate = export_huggingface(model, tmp_path / "out")
    assert certificate["largest_difference"]["float64"] < 1e-9
    back = read_huggingface(tmp_path / "out").state_dict()
    assert all(torch.equal(back[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("name", "beam"), [("M2M100", 4), ("Marian", 1), ("Marian", 4)])
def test_translations_equal_those_of_transformers(tmp_path: Path, name: str, beam: int) -> None:
    # Texts that end: transformers closes those that do not at no cost, and without a length of its
    # own for each.
    longest, fields = (
        18,
        {"vocab_size": 40, "max_position_embeddings": 30, "tie_word_embeddings": False},
    )
    theirs = random_model(name, **{**random_fields(2), **fields})
    with torch.no_grad():
        for side in (theirs.model.encoder, theirs.model.decoder):
            side.embed_tokens.weight.copy_(theirs.model.shared.weight)
        theirs.lm_head.weight.mul_(0.2)
        if name == "Marian":
            theirs.final_logits_bias.mul_(0.2)[:, END] += 3.5
        else:
            offset = theirs.model.decoder.layer_norm.bias
            theirs.lm_head.weight[END] += 3.5 * offset / offset.square().sum()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read_huggingface(tmp_path / "theirs")
    assert isinstance(ours, EncoderDecoder)
    start, pad = theirs.config.decoder_start_token_id, theirs.config.pad_token_id
    rng = np.random.default_rng(0)
    words = [word for word in range(4, 39) if word != pad]
    sources = [rng.choice(words, rng.integers(1, 9)) for _ in range(12)]
    settings = BeamSettings(beam=beam, penalty=1.0, max_length_offset=longest)
    found = dict(search(ours, sources, settings, end_id=END, pad_id=pad, start_id=start))
    rules = {
        "num_beams": beam,
        "length_penalty": 1.0,
        "do_sample": False,
        "early_stopping": beam > 1,
    }
    n_compared = 0
    for number, source in enumerate(sources):
        if any(len(each.ids) >= longest for each in found[number]):
            continue
        n_compared += 1
        given = torch.tensor([[*source, END]])
        ids = theirs.generate(
            given, **rules, max_new_tokens=longest + 1, min_new_tokens=1, bad_words_ids=[[pad]]
        )[0]
        assert found[number][0].ids.tolist() == ids[1 : ids.tolist().index(END, 1)].tolist()
    assert n_compared > 5
