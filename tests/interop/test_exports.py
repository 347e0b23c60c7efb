"""A model of every class is exported with its certificate, whatever options the class has."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.interop.huggingface.classes import FAMILIES, family_for
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.build import build
from sublayer.tasks.spec import TaskSpec
from tests.interop.exported import CONTEXT, EXPORTED, config_of, task_of
from tests.interop.folders import with_random_vectors

PLAIN = {"bias": False, "norm_affine": False}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"tie_embeddings": False, "gelu": "exact", "d_ff": None}),
    ("gpt2", {**PLAIN, "final_norm": "plain", "block": ("attention", "ffn:swish")}),
    ("gpt2", {"positions": "none", "attention_scale": "none", "norm_eps": 1e-2, "share": "all"}),
    ("gpt2", {"positions": "sinusoidal", "embedding_scale": "sqrt", "tie_embeddings": False}),
    ("gpt2", {"embedding_scale": "sqrt", "share": "attention", "segments": "second"}),
    ("openai-gpt", {**PLAIN, "tie_embeddings": False, "positions": "none", "share": "ffn"}),
    ("openai-gpt for choices", {"softmax": "all", "embedding_scale": "sqrt"}),
    ("openai-gpt for labels", {"norm_affine": False}),
    ("bert", {**PLAIN, "head_bias": False, "tie_embeddings": False, "segments": "none"}),
    ("bert that judges pairs", {"positions": "none", "segments": "second", "share": "attention"}),
    ("bert for labels", {"positions": "sinusoidal", "embedding_scale": "sqrt"}),
    ("albert", {"n_layers": 4, "share_groups": 2, "share_inner": 2, "tie_embeddings": False}),
    ("albert with another width of the table", {**PLAIN, "share": "ffn", "d_embed": 14}),
    ("albert for spans", {"d_embed": 12, "project_embeddings": "always", "share": "all"}),
    ("m2m_100", {"n_decoder_layers": 3, "tie_embeddings": False, "embedding_scale": "none"}),
    ("m2m_100", {**PLAIN, "first_position": 3, "ffn": "gelu", "norm_eps": 1e-5}),
    ("marian", {"head_bias": False, "tie_embeddings": False, "share": "all", "ffn": "swish"}),
    ("t5", {"ffn": "geglu", "gelu": "tanh", "output_scale": "sqrt", "n_decoder_layers": 1}),
    ("t5", {"norm_affine": False, "embedding_scale": "sqrt", "share": "all", "d_head": 5}),
    ("t5", {"tie_embeddings": False, "relative_buckets": 4, "relative_distance": 17}),
]


@pytest.mark.parametrize(
    ("name", "fields"), [*((name, {}) for name in EXPORTED), *OPTIONS], ids=str
)
def test_a_model_is_exported_with_the_same_logits(
    tmp_path: Path, name: str, fields: dict[str, Any]
) -> None:
    config, task = config_of(name, **fields), task_of(name)
    assert family_for(config, task) is FAMILIES[EXPORTED[name][0]]
    model = with_random_vectors(build(config, seed=1))
    if task is not None:
        model.task = TaskSpec((task,), "pair", CONTEXT)
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["checked"]
    # Sinusoids and scaled tables are rounded to float32, and norms enlarge what is rounded.
    assert certificate["largest_difference"]["float64"] <= 1e-4 * certificate["largest_logit"]
