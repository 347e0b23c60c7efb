"""One tiny random model of each class of transformers that is read, and its logits."""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

VOCAB_SIZE, LENGTH = 23, 7
_GPT2 = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 12,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 16,
    "n_inner": 10,
}
_GPT1 = {"vocab_size": VOCAB_SIZE, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16}
_ENCODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 16,
}
_ALBERT = {**_ENCODER, "embedding_size": 8}
_LABELS = {"id2label": {"0": "no", "1": "it may be", "2": "yes"}}
_TRANSLATOR = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 10,
    "max_position_embeddings": 16,
}
CLASSES = {
    "gpt2": ("GPT2LMHeadModel", _GPT2),
    "openai-gpt": ("OpenAIGPTLMHeadModel", _GPT1),
    "bert": ("BertForPreTraining", _ENCODER),
    "albert": ("AlbertForPreTraining", _ALBERT),
    "bert for labels": ("BertForSequenceClassification", {**_ENCODER, **_LABELS}),
    "bert for choices": (
        "BertForMultipleChoice",
        {**_ENCODER, "architectures": ["BertForMultipleChoice"]},
    ),
    "bert for spans": ("BertForQuestionAnswering", _ENCODER),
    "albert for labels": ("AlbertForSequenceClassification", {**_ALBERT, **_LABELS}),
    "albert for choices": (
        "AlbertForMultipleChoice",
        {**_ALBERT, "architectures": ["AlbertForMultipleChoice"]},
    ),
    "albert for spans": ("AlbertForQuestionAnswering", _ALBERT),
    "gpt2 for labels": ("GPT2ForSequenceClassification", {**_GPT2, **_LABELS}),
    "openai-gpt for labels": ("OpenAIGPTForSequenceClassification", {**_GPT1, **_LABELS}),
    "openai-gpt for choices": ("OpenAIGPTDoubleHeadsModel", _GPT1),
    "m2m_100": ("M2M100ForConditionalGeneration", _TRANSLATOR),
    "t5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCAB_SIZE,
            "d_model": 12,
            "d_kv": 5,
            "d_ff": 10,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "num_heads": 3,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 5,
            "decoder_start_token_id": 0,
        },
    ),
    "marian": ("MarianMTModel", {**_TRANSLATOR, "pad_token_id": 22, "decoder_start_token_id": 22}),
}


@dataclass(frozen=True)
class Tiny:
    """A model's class, the fields of its config.json, and its tensors by their names there."""

    name: str
    kind: Any
    fields: dict[str, Any]
    tensors: dict[str, Tensor]

    def save(self, folder, **changes):
        """Write the folder, with other fields in its config.json; an Ellipsis leaves one out."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        fields = {
            key: value for key, value in {**self.fields, **changes}.items() if value is not ...
        }
        (folder / "config.json").write_text(json.dumps(fields))
        if not (folder / "model.safetensors").exists():
            save_file(
                {key: tensor.clone() for key, tensor in self.tensors.items()},
                folder / "model.safetensors",
            )
        return folder

    def model(self, **rules):
        """Build the model of transformers of these fields and tensors."""
        model = self.kind(self.kind.config_class(**self.fields, **rules))
        model = model.to(next(iter(self.tensors.values())).dtype).eval()
        model.load_state_dict(self.tensors, strict=False)
        model.tie_weights()
        return model


@torch.no_grad()
def tiny(name, *, dtype=torch.float64, **changes):
    """Build a model of a class with every parameter random, norms and biases included."""
    import transformers

    title, fields = CLASSES[name]
    kind = getattr(transformers, title)
    fields = {**fields, **changes}
    model = kind(kind.config_class(**fields)).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    for place, parameter in model.named_parameters():
        if "embed_positions" in place:
            continue
        parameter.normal_(std=0.3, generator=generator)
        if "norm" in place.lower() or ".ln_" in place:
            parameter.add_(place.endswith("weight"))
    if name == "marian":
        model.final_logits_bias.normal_(generator=generator)
    return Tiny(name, kind, {"model_type": model_type(name), **fields}, stored(model))


def model_type(name):
    """Return what a config.json of a class says of its type."""
    return name.partition(" ")[0]


def stored(model):
    """Return the tensors that transformers saves: of those that are one, the first."""
    found = {}
    state = model.state_dict()
    for key, tensor in state.items():
        found.setdefault(tensor.data_ptr(), key)
    return {key: state[key].contiguous() for key in found.values()}


def batch():
    """Return the tokens that models are asked about, and those that follow for a translator."""
    generator = torch.Generator().manual_seed(3)
    # No token is a padding, to which M2M100 gives no position.
    tokens = torch.randint(4, VOCAB_SIZE - 1, (2, LENGTH), generator=generator)
    return tokens, tokens.flip(1)


@torch.inference_mode()
def ours(model):
    """Return our model's logits."""
    tokens, target = batch()
    model = model.double()
    if model.config.kind == "encoder-decoder":
        return model(tokens, torch.ones_like(tokens).bool(), target=target).logits
    output = model(tokens)
    return output.get("label", output.get("span", output.get("vocabulary")))


@torch.inference_mode()
def theirs(model):
    """Return the logits of a model of transformers."""
    tokens, target = batch()
    model = model.double().eval()
    if model.config.is_encoder_decoder:
        return model(tokens, decoder_input_ids=target, use_cache=False).logits
    title = type(model).__name__
    if title.endswith("ForMultipleChoice"):
        choices = model(tokens[None]).logits
        return choices.T
    if title.endswith("DoubleHeadsModel"):
        by_choice = model(tokens[None]).mc_logits
        return by_choice.T
    if title in ("GPT2ForSequenceClassification", "OpenAIGPTForSequenceClassification"):
        # Without a padding it reads the last token, and one row.
        model.config.pad_token_id = None
        return torch.cat([model(row[None]).logits for row in tokens])
    output = model(tokens, return_dict=True)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits if "logits" in output else output.prediction_logits
