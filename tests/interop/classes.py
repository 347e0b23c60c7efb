"""The tables of classes: a tiny config of each that is read, and models that become each."""

from sublayer.tasks.task import Task

VOCAB_SIZE = 23
_HF_GPT1 = {"vocab_size": VOCAB_SIZE, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16}
_HF_GPT2 = {**_HF_GPT1, "n_inner": 10}
_HF_ENCODER = {"vocab_size": VOCAB_SIZE, "hidden_size": 12, "num_hidden_layers": 2}
_HF_ENCODER |= {"num_attention_heads": 3, "intermediate_size": 10, "max_position_embeddings": 16}
_HF_ALBERT = {**_HF_ENCODER, "embedding_size": 8}
_HF_LABELS = {"id2label": {"0": "no", "1": "it may be", "2": "yes"}}
_HF_TRANSLATOR = {"vocab_size": VOCAB_SIZE, "d_model": 12, "encoder_layers": 2}
_HF_TRANSLATOR |= {"decoder_layers": 1, "encoder_attention_heads": 3, "encoder_ffn_dim": 10}
_HF_TRANSLATOR |= {"decoder_attention_heads": 3, "decoder_ffn_dim": 10}
_HF_TRANSLATOR |= {"max_position_embeddings": 16}
_HF_PADDING = {"pad_token_id": 22, "decoder_start_token_id": 22}
_HF_ROBERTA = {**_HF_ENCODER, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_HF_ELECTRA = {**_HF_ENCODER, "embedding_size": 8}
_HF_DISTILBERT = {"vocab_size": VOCAB_SIZE, "dim": 12, "n_layers": 2, "n_heads": 3}
_HF_DISTILBERT |= {"hidden_dim": 10, "max_position_embeddings": 16}
_HF_MODERNBERT = {**_HF_ENCODER, "num_hidden_layers": 4, "local_attention": 4, "pad_token_id": 1}
_HF_T5 = {"vocab_size": VOCAB_SIZE, "d_model": 12, "d_kv": 5, "d_ff": 10, "num_layers": 2}
_HF_T5 |= {"num_decoder_layers": 1, "num_heads": 3, "decoder_start_token_id": 0}
_HF_T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 5}


def _choices(title, fields):
    return title, {**fields, "architectures": [title]}


CLASSES = {
    "gpt2": ("GPT2LMHeadModel", _HF_GPT2), "openai-gpt": ("OpenAIGPTLMHeadModel", _HF_GPT1),
    "bert": ("BertForPreTraining", _HF_ENCODER), "albert": ("AlbertForPreTraining", _HF_ALBERT),
    "bert for labels": ("BertForSequenceClassification", {**_HF_ENCODER, **_HF_LABELS}),
    "bert for choices": _choices("BertForMultipleChoice", _HF_ENCODER),
    "bert for spans": ("BertForQuestionAnswering", _HF_ENCODER),
    "albert for labels": ("AlbertForSequenceClassification", {**_HF_ALBERT, **_HF_LABELS}),
    "albert for choices": _choices("AlbertForMultipleChoice", _HF_ALBERT),
    "albert for spans": ("AlbertForQuestionAnswering", _HF_ALBERT),
    "gpt2 for labels": ("GPT2ForSequenceClassification", {**_HF_GPT2, **_HF_LABELS}),
    "openai-gpt for labels": ("OpenAIGPTForSequenceClassification", {**_HF_GPT1, **_HF_LABELS}),
    "openai-gpt for choices": ("OpenAIGPTDoubleHeadsModel", _HF_GPT1),
    "m2m_100": ("M2M100ForConditionalGeneration", _HF_TRANSLATOR),
    "t5": ("T5ForConditionalGeneration", _HF_T5),
    "marian": ("MarianMTModel", {**_HF_TRANSLATOR, **_HF_PADDING}),
    "bart": ("BartForConditionalGeneration", _HF_TRANSLATOR),
    "roberta": ("RobertaForMaskedLM", _HF_ROBERTA),
    "roberta for labels": ("RobertaForSequenceClassification", {**_HF_ROBERTA, **_HF_LABELS}),
    "roberta for choices": _choices("RobertaForMultipleChoice", _HF_ROBERTA),
    "roberta for spans": ("RobertaForQuestionAnswering", _HF_ROBERTA),
    "distilbert": ("DistilBertForMaskedLM", _HF_DISTILBERT),
    "distilbert for labels":
        ("DistilBertForSequenceClassification", {**_HF_DISTILBERT, **_HF_LABELS}),
    "distilbert for choices": _choices("DistilBertForMultipleChoice", _HF_DISTILBERT),
    "distilbert for spans": ("DistilBertForQuestionAnswering", _HF_DISTILBERT),
    "electra": ("ElectraForMaskedLM", _HF_ELECTRA),
    "electra for labels": ("ElectraForSequenceClassification", {**_HF_ELECTRA, **_HF_LABELS}),
    "electra for choices": _choices("ElectraForMultipleChoice", _HF_ELECTRA),
    "electra for spans": ("ElectraForQuestionAnswering", _HF_ELECTRA),
    "modernbert": ("ModernBertForMaskedLM", _HF_MODERNBERT),
    "modernbert for labels":
        ("ModernBertForSequenceClassification", {**_HF_MODERNBERT, **_HF_LABELS}),
    "modernbert for choices": _choices("ModernBertForMultipleChoice", _HF_MODERNBERT),
}  # fmt: skip
"""The class of transformers and its tiny config, by the name of the family."""
_OF_ENCODERS, _EPS = {"hidden_act": "relu", "layer_norm_eps": 0.01}, {"layer_norm_epsilon": 0.01}
SMALL_CHANGES = {
    "t5": {"feed_forward_proj": "gelu_new", "scale_decoder_outputs": False,
           "relative_attention_max_distance": 9, **_EPS},
    "bert": _OF_ENCODERS, "albert": _OF_ENCODERS,
    "openai-gpt": {"afn": "silu", **_EPS},
    "gpt2": {"activation_function": "relu", "scale_attn_weights": False, **_EPS},
    "marian": {"activation_function": "gelu", "scale_embedding": True},
    "m2m_100": {"activation_function": "gelu", "scale_embedding": False},
    "bart": {"activation_function": "relu", "scale_embedding": True},
    "roberta": _OF_ENCODERS, "electra": _OF_ENCODERS, "distilbert": {"activation": "relu"},
    "modernbert": {"hidden_activation": "silu", "norm_eps": 0.01, "global_attn_every_n_layers": 2},
}  # fmt: skip
"""Values of another kind than a field's default, which fit a tiny model's tensors."""
IN_FLOAT32 = ("modernbert",)
"""Classes that compute angles and the softmax in float32, whatever their weights are in."""


def limit(name):
    """Return the largest difference of logits in float64, by the name of the family."""
    return 1e-4 if name.partition(" ")[0] in IN_FLOAT32 else 1e-12


_SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 5, "init_std": 0.3}
_GPT2 = {**_SIZES, "positions": "learned"}
_GPT1 = {**_SIZES, "d_ff": None, "norm_order": "post", "gelu": "tanh", "ffn": "gelu"}
_ENCODER = {**_SIZES, "kind": "encoder", "norm_order": "post", "embedding_norm": "affine"}
_ENCODER |= {"segments": "both", "head": "transform", "head_bias": True}
_ALBERT = {**_ENCODER, "d_embed": 4, "embedding_projection": "sum"}
_PAIRS = {"pooler": "tanh", "sentence_classes": 2}
_LABELS = {"head": "none", "pooler": "tanh", "label_outputs": 3}
_CHOICES = {**_LABELS, "label_outputs": 1}
_SPANS = {"head": "none", "span_head": "independent"}
_TRANSLATOR = {**_SIZES, "kind": "encoder-decoder", "ffn": "relu"}
_T5 = {**_TRANSLATOR, "norm": "rms", "positions": "relative", "attention_scale": "none"}
_T5 |= {"bias": False, "decoder_start": "pad"}
_BART = {**_TRANSLATOR, "norm_order": "post", "embedding_norm": "affine", "decoder_start": "pad"}
_TRANSLATOR |= {"positions": "sinusoidal", "embedding_scale": "sqrt"}
_M2M100 = {**_TRANSLATOR, "sinusoids": "fairseq", "first_position": 2}
_MARIAN = {**_TRANSLATOR, "sinusoids": "marian", "norm_order": "post", "head_bias": True}
_ROBERTA = {**_ENCODER, "segments": "none", "gelu": "exact"}
_DISTILBERT = {**_ENCODER, "segments": "none", "norm_eps": 1e-12}
_ELECTRA = {**_ALBERT, "gelu": "exact"}
_MODERNBERT = {**_ROBERTA, "norm_order": "pre", "first_norm": False, "positions": "rotary"}
_MODERNBERT |= {"ffn": "geglu", "bias": False, "n_layers": 3, "rotary_local_base": 50.0}
_MODERNBERT |= {"attention_window": 4, "window_pattern": "GL", "rotary_base": 500.0}
_RELU, _GELU, _TRANSFORM = ({"pooler": name} for name in ("relu", "gelu", "transform"))
CHOICE = Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",))
EXPORTED = {
    "gpt2": ("gpt2", _GPT2), "openai-gpt": ("openai-gpt", _GPT1),
    "openai-gpt with positions as classes": ("openai-gpt", {**_GPT1, "softmax": "all"}),
    "openai-gpt for labels": ("openai-gpt for labels", {**_GPT1, **_LABELS, "pooler": "none"}),
    "openai-gpt for choices": ("openai-gpt for choices", {**_GPT1, "label_outputs": 1}),
    "gpt2 for labels": ("gpt2 for labels", {**_GPT2, **_LABELS, "pooler": "none"}),
    "bert for labels": ("bert for labels", {**_ENCODER, **_LABELS}),
    "bert for choices": ("bert for choices", {**_ENCODER, **_CHOICES}),
    "bert for spans": ("bert for spans", {**_ENCODER, **_SPANS}),
    "albert for labels": ("albert for labels", {**_ALBERT, **_LABELS}),
    "albert for choices": ("albert for choices", {**_ALBERT, **_CHOICES}),
    "albert for spans": ("albert for spans", {**_ALBERT, **_SPANS, "share": "all"}),
    "bert": ("bert", _ENCODER),
    "bert that judges pairs": ("bert", {**_ENCODER, **_PAIRS}),
    "albert": ("albert", {**_ENCODER, "share": "all"}),
    "albert with another width of the table": ("albert", {**_ALBERT, **_PAIRS}),
    "m2m_100": ("m2m_100", _M2M100), "marian": ("marian", _MARIAN), "t5": ("t5", _T5),
    "bart": ("bart", _BART), "roberta": ("roberta", _ROBERTA),
    "roberta for labels": ("roberta for labels", {**_ROBERTA, **_LABELS}),
    "roberta for choices": ("roberta for choices", {**_ROBERTA, **_CHOICES}),
    "roberta for spans": ("roberta for spans", {**_ROBERTA, **_SPANS}),
    "distilbert": ("distilbert", _DISTILBERT),
    "distilbert for labels": ("distilbert for labels", {**_DISTILBERT, **_LABELS, **_RELU}),
    "distilbert for choices": ("distilbert for choices", {**_DISTILBERT, **_CHOICES, **_RELU}),
    "distilbert for spans": ("distilbert for spans", {**_DISTILBERT, **_SPANS}),
    "electra": ("electra", _ELECTRA),
    "electra for labels": ("electra for labels", {**_ELECTRA, **_LABELS, **_GELU}),
    "electra for choices": ("electra for choices", {**_ELECTRA, **_CHOICES, **_GELU}),
    "electra for spans": ("electra for spans", {**_ELECTRA, **_SPANS}),
    "modernbert": ("modernbert", _MODERNBERT),
    "modernbert for labels": ("modernbert for labels", {**_MODERNBERT, **_LABELS, **_TRANSFORM}),
    "modernbert for choices": ("modernbert for choices", {**_MODERNBERT, **_CHOICES, **_TRANSFORM}),
}  # fmt: skip
"""The class that each becomes, and the fields of one that does."""
