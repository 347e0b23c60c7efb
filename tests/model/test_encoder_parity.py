"""Same weights, same numbers as transformers' BERT and ALBERT, in float64 and float32."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AlbertConfig, AlbertForPreTraining, BertConfig, BertForPreTraining

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import compose
from sublayer.model.transformer import Transformer

VOCAB_SIZE, MAX_LEN = 53, 19
ACTIVATIONS = {"relu": ("relu", "tanh"), "gelu": ("gelu", "exact"), "gelu_new": ("gelu", "tanh")}


def sizes(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    n_heads = draw.choice([1, 2, 3])
    return {
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_LEN,
        "hidden_size": n_heads * draw.randrange(2, 6),
        "num_attention_heads": n_heads,
        "intermediate_size": draw.randrange(5, 23),
        "hidden_act": draw.choice(list(ACTIVATIONS)),
        "layer_norm_eps": draw.choice([1e-12, 1e-5]),
        "type_vocab_size": 2,
    }


def fields_of(given: Any, **more: Any) -> ModelConfig:
    ffn, gelu = ACTIVATIONS[given.hidden_act]
    config = ModelConfig(
        kind="encoder",
        d_model=given.hidden_size,
        n_heads=given.num_attention_heads,
        d_ff=given.intermediate_size,
        ffn=ffn,
        gelu=gelu,
        norm_order="post",
        norm_eps=given.layer_norm_eps,
        embedding_norm=True,
        segments="both",
        head="transform",
        head_bias=True,
        pooler="tanh",
        sentence_classes=2,
        **more,
    )
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=MAX_LEN)


def randomised(oracle: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if "LayerNorm.weight" in name or "layer_norm.weight" in name:
                parameter.add_(1.0)
    return oracle.eval()


def linear(source: dict[str, Tensor], theirs: str, ours: str) -> Iterator[tuple[str, Tensor]]:
    for kind in ("weight", "bias"):
        yield f"{ours}.{kind}", source[f"{theirs}.{kind}"]


def stacked(source: dict[str, Tensor], theirs: str, ours: str) -> Iterator[tuple[str, Tensor]]:
    for kind in ("weight", "bias"):
        yield (
            f"{ours}.{kind}",
            torch.stack([source[f"{theirs}.{name}.{kind}"] for name in ("query", "key", "value")]),
        )


def bert_weights(oracle: BertForPreTraining) -> dict[str, Tensor]:
    source = dict(oracle.state_dict())
    found = {
        "embedding.weight": source["bert.embeddings.word_embeddings.weight"],
        "positions.tables.0.weight": source["bert.embeddings.position_embeddings.weight"],
        "segment_table.weight": source["bert.embeddings.token_type_embeddings.weight"],
        "head.bias": source["cls.predictions.bias"],
    }
    pairs = [
        ("bert.embeddings.LayerNorm", "embedding_norm"),
        ("bert.pooler.dense", "pooler.linear"),
        ("cls.seq_relationship", "sentence_head"),
        ("cls.predictions.transform.dense", "head.projection"),
        ("cls.predictions.transform.LayerNorm", "head.norm"),
    ]
    for layer in range(oracle.config.num_hidden_layers):
        theirs, ours = f"bert.encoder.layer.{layer}", "encoder.sublayers"
        found |= stacked(
            source, f"{theirs}.attention.self", f"{ours}.0.{layer}.function.projection"
        )
        pairs += [
            (f"{theirs}.attention.output.dense", f"{ours}.0.{layer}.function.output"),
            (f"{theirs}.attention.output.LayerNorm", f"{ours}.0.{layer}.norm"),
            (f"{theirs}.intermediate.dense", f"{ours}.1.{layer}.function.input"),
            (f"{theirs}.output.dense", f"{ours}.1.{layer}.function.output"),
            (f"{theirs}.output.LayerNorm", f"{ours}.1.{layer}.norm"),
        ]
    for theirs, ours in pairs:
        found |= linear(source, theirs, ours)
    return found


def albert_weights(oracle: AlbertForPreTraining) -> dict[str, Tensor]:
    source, given = dict(oracle.state_dict()), oracle.config
    found = {
        "embedding.weight": source["albert.embeddings.word_embeddings.weight"],
        "positions.tables.0.weight": source["albert.embeddings.position_embeddings.weight"],
        "segment_table.weight": source["albert.embeddings.token_type_embeddings.weight"],
        "head.bias": source["predictions.bias"],
    }
    pairs = [
        ("albert.embeddings.LayerNorm", "embedding_norm"),
        ("albert.encoder.embedding_hidden_mapping_in", "embedding.projection"),
        ("albert.pooler", "pooler.linear"),
        ("sop_classifier.classifier", "sentence_head"),
        ("predictions.dense", "head.projection"),
        ("predictions.LayerNorm", "head.norm"),
    ]
    for group in range(given.num_hidden_groups):
        for inner in range(given.inner_group_num):
            slot = group * given.inner_group_num + inner
            theirs = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
            attention, ffn = f"encoder.sublayers.0.{slot}", f"encoder.sublayers.1.{slot}"
            found |= stacked(source, f"{theirs}.attention", f"{attention}.function.projection")
            pairs += [
                (f"{theirs}.attention.dense", f"{attention}.function.output"),
                (f"{theirs}.attention.LayerNorm", f"{attention}.norm"),
                (f"{theirs}.ffn", f"{ffn}.function.input"),
                (f"{theirs}.ffn_output", f"{ffn}.function.output"),
                (f"{theirs}.full_layer_layer_norm", f"{ffn}.norm"),
            ]
    for theirs, ours in pairs:
        found |= linear(source, theirs, ours)
    return found


def bert(seed: int) -> tuple[Any, Transformer]:
    oracle = randomised(
        BertForPreTraining(BertConfig(num_hidden_layers=1 + seed % 3, **sizes(seed)))
    )
    model = compose(fields_of(oracle.config, n_layers=oracle.config.num_hidden_layers))
    model.load_state_dict(bert_weights(oracle))
    return oracle, model.eval()


def albert(seed: int) -> tuple[Any, Transformer]:
    draw = random.Random(seed + 100)
    shared, width = sizes(seed), sizes(seed)["hidden_size"]
    n_layers = draw.choice([2, 3, 4])
    given = AlbertConfig(
        num_hidden_layers=n_layers,
        num_hidden_groups=draw.choice([1, 2, n_layers]),
        inner_group_num=draw.choice([1, 2]),
        embedding_size=[width - 1, width, width + 2][seed % 3],
        **shared,
    )
    oracle = randomised(AlbertForPreTraining(given))
    config = fields_of(
        given,
        n_layers=n_layers * given.inner_group_num,
        d_embed=given.embedding_size,
        embedding_projection="sum",
        project_embeddings="always" if given.embedding_size == width else "as-needed",
        share="all",
        share_groups=given.num_hidden_groups,
        share_inner=given.inner_group_num,
    )
    model = compose(config)
    model.load_state_dict(albert_weights(oracle))
    return oracle, model.eval()


PAIRS = {"bert": bert, "albert": albert}
each_model = pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in PAIRS for seed in range(6)]
)


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(MAX_LEN) < torch.tensor([MAX_LEN, 11, 5])[:, None]
    segments = (torch.arange(MAX_LEN) >= torch.tensor([9, 6, 5])[:, None]).long() * mask
    return {
        "tokens": torch.randint(VOCAB_SIZE, (3, MAX_LEN), generator=generator),
        "mask": mask,
        "segments": segments,
    }


@each_model
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=str
)
def test_both_heads_equal_those_of_transformers(
    name: str, seed: int, dtype: torch.dtype, tolerance: float
) -> None:
    oracle, model = PAIRS[name](seed)
    given = batch()
    with torch.no_grad():
        expected = oracle.to(dtype)(
            given["tokens"], attention_mask=given["mask"].long(), token_type_ids=given["segments"]
        )
        found = model.to(dtype)(given["tokens"], given["mask"], given["segments"])
    assert found.sentence_logits is not None
    logits = expected.prediction_logits[given["mask"]]
    scale = max(1.0, float(logits.abs().max())) if dtype == torch.float32 else 1.0
    torch.testing.assert_close(found.logits[given["mask"]], logits, rtol=0, atol=tolerance * scale)
    judged = expected.seq_relationship_logits if name == "bert" else expected.sop_logits
    torch.testing.assert_close(found.sentence_logits, judged, rtol=0, atol=tolerance * scale)


@each_model
def test_without_mask_and_segments_they_agree_too(name: str, seed: int) -> None:
    oracle, model = PAIRS[name](seed)
    with torch.no_grad():
        expected = oracle.double()(batch()["tokens"])
        found = model.double()(batch()["tokens"])
    torch.testing.assert_close(found.logits, expected.prediction_logits, rtol=0, atol=1e-9)
