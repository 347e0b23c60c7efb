"""Random small BERT and ALBERT models of transformers, their inputs and their outputs."""

import random
from typing import Any

import torch
from torch import Tensor

VOCAB_SIZE, MAX_LEN = 53, 19


def random_fields(name: str, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    n_heads, n_layers = draw.choice([1, 2, 3]), draw.choice([2, 3, 4])
    width = n_heads * draw.randrange(2, 6)
    fields = {
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_LEN,
        "hidden_size": width,
        "num_attention_heads": n_heads,
        "num_hidden_layers": n_layers,
        "intermediate_size": draw.randrange(5, 23),
        "hidden_act": ["gelu", "gelu_new", "relu"][seed % 3],
        "layer_norm_eps": draw.choice([1e-12, 1e-5]),
        "hidden_dropout_prob": draw.choice([0.0, 0.1]),
        "attention_probs_dropout_prob": draw.choice([0.0, 0.3]),
        "initializer_range": draw.choice([0.02, 0.1]),
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if name == "albert":
        fields |= {
            "embedding_size": [width - 1, width, width + 2][seed // 2 % 3],
            "num_hidden_groups": [1, 2, n_layers][seed % 3],
            "inner_group_num": [1, 2][seed // 3 % 2],
        }
    return fields


@torch.no_grad()
def random_encoder(name: str, kind: str = "ForPreTraining", **fields: Any) -> Any:
    """Build transformers' encoder with every parameter random, norms and biases included."""
    import transformers

    title = name.capitalize()
    oracle = getattr(transformers, title + kind)(getattr(transformers, f"{title}Config")(**fields))
    generator = torch.Generator().manual_seed(1)
    for place, parameter in oracle.named_parameters():
        parameter.normal_(std=0.3, generator=generator)
        if place.lower().endswith(("layernorm.weight", "layer_norm.weight")):
            parameter.add_(1.0)
    return oracle.eval()


def batch() -> dict[str, Tensor]:
    mask = torch.arange(MAX_LEN) < torch.tensor([MAX_LEN, 11, 5])[:, None]
    segments = (torch.arange(MAX_LEN) >= torch.tensor([9, 6, 5])[:, None]).long() * mask
    tokens = torch.randint(VOCAB_SIZE, (3, MAX_LEN), generator=torch.Generator().manual_seed(3))
    return {"tokens": tokens, "mask": mask, "segments": segments}


@torch.inference_mode()
def ours(model: Any) -> tuple[Tensor, Tensor | None]:
    """Return a model's logits at real places, and of the sentence head."""
    output = model(**batch())
    return output.logits[batch()["mask"]], output.sentence_logits


@torch.inference_mode()
def theirs(oracle: Any) -> tuple[Tensor, Tensor | None]:
    """Return the same of a model of transformers."""
    given = batch()
    output = oracle(
        given["tokens"], attention_mask=given["mask"].long(), token_type_ids=given["segments"]
    )
    logits = output.logits if "logits" in output else output.prediction_logits
    return logits[given["mask"]], output.get("seq_relationship_logits", output.get("sop_logits"))


def assert_equal(
    found: tuple[Tensor, Tensor | None], expected: tuple[Tensor, Tensor | None], atol: float
) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=atol)
    assert (found[1] is None) == (expected[1] is None)
    if found[1] is not None:
        torch.testing.assert_close(found[1], expected[1], rtol=0, atol=atol)
