"""What systems call BERT's and ALBERT's tensors; ``encoder_weights.py`` pairs them with ours."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """What a system calls an encoder's tensors, without the prefix of the whole."""

    words: str
    """The table of tokens."""
    positions: str
    segments: str
    embedding_norm: str
    projection: str
    """Of factorised embeddings, to the width of the model."""
    unit: str
    """What the names of a block begin with, of a group and a place in it."""
    attention: str
    """What follows that in the names of queries, keys and values."""
    attention_output: str
    attention_norm: str
    ffn_input: str
    ffn_output: str
    ffn_norm: str
    transform: str
    """The map of the head, before its norm."""
    transform_norm: str
    output_bias: str
    decoder: str
    """Where an untied output matrix stands, with a bias of its own."""
    pooler: str
    sentence: tuple[str, str]
    """The weight and the bias of the head that judges pairs."""
    labels: str = "classifier"
    """The head that answers by labels or choices."""
    spans: str = "qa_outputs"
    """The head that finds spans."""
    linear: tuple[str, str] = (".weight", ".bias")
    """What the names of a map end with."""
    norm: tuple[str, str] = (".weight", ".bias")
    """What the names of a norm end with: its gain's and its offset's."""
    is_transposed: bool = False
    """Whether maps are ``[d_in, d_out]``."""


BERT = Names(
    words="embeddings.word_embeddings.weight",
    positions="embeddings.position_embeddings.weight",
    segments="embeddings.token_type_embeddings.weight",
    embedding_norm="embeddings.LayerNorm",
    projection="encoder.embedding_hidden_mapping_in",
    unit="encoder.layer.{group}.",
    attention="attention.self.",
    attention_output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    ffn_input="intermediate.dense",
    ffn_output="output.dense",
    ffn_norm="output.LayerNorm",
    transform="cls.predictions.transform.dense",
    transform_norm="cls.predictions.transform.LayerNorm",
    output_bias="cls.predictions.bias",
    decoder="cls.predictions.decoder",
    pooler="pooler.dense",
    sentence=("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
ALBERT = Names(
    words="embeddings.word_embeddings.weight",
    positions="embeddings.position_embeddings.weight",
    segments="embeddings.token_type_embeddings.weight",
    embedding_norm="embeddings.LayerNorm",
    projection="encoder.embedding_hidden_mapping_in",
    unit="encoder.albert_layer_groups.{group}.albert_layers.{inner}.",
    attention="attention.",
    attention_output="attention.dense",
    attention_norm="attention.LayerNorm",
    ffn_input="ffn",
    ffn_output="ffn_output",
    ffn_norm="full_layer_layer_norm",
    transform="predictions.dense",
    transform_norm="predictions.LayerNorm",
    output_bias="predictions.bias",
    decoder="predictions.decoder",
    pooler="pooler",
    sentence=("sop_classifier.classifier.weight", "sop_classifier.classifier.bias"),
)
