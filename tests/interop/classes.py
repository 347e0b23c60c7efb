"""The tables of classes: a tiny config of each that is read, and models that become each."""

from sublayer.tasks.task import Task

VOCAB_SIZE = 23
LIMIT = 1e-12
"""The largest difference of logits in float64."""
_HF_GPT1 = {"vocab_size": VOCAB_SIZE, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16}
_HF_GPT2 = {**_HF_GPT1, "n_inner": 10}
_HF_ENCODER = {"vocab_size": VOCAB_SIZE, "hidden_size": 12, "num_hidden_layers": 2}
_HF_ENCODER |= {"num_attention_heads": 3, "intermediate_size": 10, "max_position_embeddings": 16}
_HF_LABELS = {"id2label": {"0": "no", "1": "it may be", "2": "yes"}}
_HF_TRANSLATOR = {"vocab_size": VOCAB_SIZE, "d_model": 12, "encoder_layers": 2}
_HF_TRANSLATOR |= {"decoder_layers": 1, "encoder_attention_heads": 3, "encoder_ffn_dim": 10}
_HF_TRANSLATOR |= {"decoder_attention_heads": 3, "decoder_ffn_dim": 10}
_HF_TRANSLATOR |= {"max_position_embeddings": 16}
_HF_PADDING = {"pad_token_id": 22, "decoder_start_token_id": 22}
_HF_ROBERTA = {**_HF_ENCODER, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
_HF_DISTILBERT = {"vocab_size": VOCAB_SIZE, "dim": 12, "n_layers": 2, "n_heads": 3}
_HF_DISTILBERT |= {"hidden_dim": 10, "max_position_embeddings": 16}
_HF_MODERNBERT = {**_HF_ENCODER, "num_hidden_layers": 4, "local_attention": 4, "pad_token_id": 1}
_HF_ENCODERS = {
    "bert": ("Bert", "PreTraining", _HF_ENCODER),
    "albert": ("Albert", "PreTraining", {**_HF_ENCODER, "embedding_size": 8}),
    "roberta": ("Roberta", "MaskedLM", _HF_ROBERTA),
    "distilbert": ("DistilBert", "MaskedLM", _HF_DISTILBERT),
    "electra": ("Electra", "MaskedLM", {**_HF_ENCODER, "embedding_size": 8}),
    "modernbert": ("ModernBert", "MaskedLM", _HF_MODERNBERT),
}
_HF_T5 = {"vocab_size": VOCAB_SIZE, "d_model": 12, "d_kv": 5, "d_ff": 10, "num_layers": 2}
_HF_T5 |= {"num_decoder_layers": 1, "num_heads": 3, "decoder_start_token_id": 0}
_HF_T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 5}
_HF_LLAMA = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "intermediate_size": 10}
_HF_LLAMA |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16}
_HF_LLAMA |= {"pad_token_id": None}
_HF_GROUPED = {**_HF_LLAMA, "num_key_value_heads": 2}
_HF_GEMMA = {**_HF_GROUPED, "head_dim": 6}
_HF_GPTJ = {**_HF_GPT2, "n_embd": 16, "n_head": 4, "rotary_dim": 2, "pad_token_id": None}
_HF_DECODERS = {
    "llama": ("Llama", _HF_LLAMA), "mistral": ("Mistral", _HF_GROUPED),
    "smollm3": ("SmolLM3", _HF_GROUPED), "qwen2": ("Qwen2", _HF_GROUPED),
    "qwen3": ("Qwen3", _HF_GEMMA), "olmo2": ("Olmo2", _HF_GROUPED),
    "gemma2": ("Gemma2", _HF_GEMMA), "gemma3_text": ("Gemma3", _HF_GEMMA),
    "granite": ("Granite", _HF_GROUPED), "gpt_neox": ("GPTNeoX", {**_HF_LLAMA, "rotary_pct": 0.5}),
    "gptj": ("GPTJ", _HF_GPTJ), "cohere": ("Cohere", _HF_GROUPED),
    "nanochat": ("NanoChat", _HF_GROUPED),
}  # fmt: skip
WITHOUT_LABELS = ("granite", "cohere", "nanochat")
DECODERS = tuple(_HF_DECODERS)


CLASSES = {
    "gpt2": ("GPT2LMHeadModel", _HF_GPT2), "openai-gpt": ("OpenAIGPTLMHeadModel", _HF_GPT1),
    "gpt2 for labels": ("GPT2ForSequenceClassification", {**_HF_GPT2, **_HF_LABELS}),
    "openai-gpt for labels": ("OpenAIGPTForSequenceClassification", {**_HF_GPT1, **_HF_LABELS}),
    "openai-gpt for choices": ("OpenAIGPTDoubleHeadsModel", _HF_GPT1),
    "m2m_100": ("M2M100ForConditionalGeneration", _HF_TRANSLATOR),
    "t5": ("T5ForConditionalGeneration", _HF_T5),
    "marian": ("MarianMTModel", {**_HF_TRANSLATOR, **_HF_PADDING}),
    "bart": ("BartForConditionalGeneration", _HF_TRANSLATOR),
}  # fmt: skip
for _name, (_title, _ending, _fields) in _HF_ENCODERS.items():
    _choices = f"{_title}ForMultipleChoice"
    CLASSES |= {
        _name: (f"{_title}For{_ending}", _fields),
        f"{_name} for labels": (f"{_title}ForSequenceClassification", {**_fields, **_HF_LABELS}),
        f"{_name} for choices": (_choices, {**_fields, "architectures": [_choices]}),
        f"{_name} for spans": (f"{_title}ForQuestionAnswering", _fields),
    }
del CLASSES["modernbert for spans"]
for _name, (_class, _fields) in _HF_DECODERS.items():
    CLASSES[_name] = (f"{_class}ForCausalLM", _fields)
    if _name not in WITHOUT_LABELS:
        _title = f"{'Gemma3Text' if _class == 'Gemma3' else _class}ForSequenceClassification"
        CLASSES[f"{_name} for labels"] = (_title, {**_fields, **_HF_LABELS})
"""The class of transformers and its tiny config, by the name of the family."""
VARIANTS = {
    "bert": [{"hidden_act": "relu", "layer_norm_eps": 0.01}, {"tie_word_embeddings": False}],
    "albert": [
        {"num_hidden_layers": 3, "num_hidden_groups": n, "inner_group_num": 2, "embedding_size": 14}
        for n in (1, 3)
    ],
    "roberta": [{"hidden_act": "relu", "pad_token_id": 0}, {"tie_word_embeddings": False}],
    "distilbert": [{"activation": "gelu_new"}, {"tie_word_embeddings": False}],
    "electra": [{"hidden_act": "silu"}, {"embedding_size": 12, "tie_word_embeddings": False}],
    "modernbert": [
        {"hidden_activation": "relu", "norm_bias": True, "decoder_bias": False, "norm_eps": 0.01},
        {"hidden_activation": "silu", "global_attn_every_n_layers": 2},
        {"layer_types": ["sliding_attention", "full_attention"] * 2, "local_rope_theta": 50.0},
        {"layer_types": ["sliding_attention"] * 4, "local_attention": 7, "local_rope_theta": 70.0},
        {"layer_types": ["full_attention"] * 4, "tie_word_embeddings": False},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}},
    ],
}
"""Other fields of encoders, by their type."""
TITLES = [(name, "") for name in CLASSES] + [("bert", "BertForNextSentencePrediction")]
TITLES += [("bert", "BertForMaskedLM"), ("albert", "AlbertForMaskedLM")]
TITLES += [(name, f"{title}Model") for name, (title, *_) in _HF_ENCODERS.items()]
COMING = [
    (name, title, fields)
    for name, title in TITLES
    for fields in [{}, *VARIANTS.get(name.partition(" ")[0], [])]
]
"""Classes that come in, by family and title, and fields over those of the table."""

_SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_ff": 5, "init_std": 0.3}
_GPT2 = {**_SIZES, "positions": "learned"}
_GPT1 = {**_SIZES, "d_ff": None, "norm_order": "post", "gelu": "tanh", "ffn": "gelu"}
_ENCODER = {**_SIZES, "kind": "encoder", "norm_order": "post", "embedding_norm": "affine"}
_ENCODER |= {"segments": "both", "head": "transform", "head_bias": True}
_ALBERT = {**_ENCODER, "d_embed": 4, "embedding_projection": "sum"}
_PAIRS = {"pooler": "tanh", "sentence_classes": 2}
_LABELS = {"head": "none", "label_outputs": 3}
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
_ENCODERS = {
    "bert": (_ENCODER, "tanh"), "albert": (_ALBERT, "tanh"), "roberta": (_ROBERTA, "tanh"),
    "distilbert": (_DISTILBERT, "relu"), "electra": (_ELECTRA, "gelu"),
    "modernbert": (_MODERNBERT, "transform"),
}  # fmt: skip
_LLAMA = {**_SIZES, "norm": "rms", "positions": "rotary", "ffn": "swiglu", "bias": False}
_GEMMA = {**_LLAMA, "norm_order": "around", "embedding_scale": "sqrt", "ffn": "geglu"}
_NEOX = {**_SIZES, "positions": "rotary", "rotary_fraction": 0.5, "ffn": "gelu"}
_PARALLEL = {"block": "parallel", "rotary_layout": "interleaved"}
_DECODERS = {
    "llama": _LLAMA, "mistral": {**_LLAMA, "attention_window": 4, "n_kv_heads": 1},
    "smollm3": {**_LLAMA, "position_pattern": "PN"},
    "qwen2": {**_LLAMA, "bias": dict.fromkeys(("query", "key", "value"), True)},
    "qwen3": {**_LLAMA, "qk_norm": "rms", "d_head": 6},
    "olmo2": {**_LLAMA, "norm_order": "after", "qk_norm": "rms", "qk_norm_over": "all"},
    "gemma2": {**_GEMMA, "score_cap": 0.9, "attention_window": 3, "window_pattern": "LG"},
    "gemma3_text": {**_GEMMA, "qk_norm": "rms", "attention_window": 3, "window_pattern": "LG",
                    "rotary_local_base": 99.0},
    "granite": {**_LLAMA, "residual_scale": 0.3, "embedding_scale": 2.5},
    "gpt_neox": {**_NEOX, "rotary_base": 99.0}, "gptj": {**_NEOX, **_PARALLEL, "bias": False},
    "cohere": {**_LLAMA, **_PARALLEL, "norm": "layer", "norm_bias": False, "output_scale": 4.0},
    "nanochat": {**_LLAMA, "ffn": "relu2", "norm_affine": False, "final_norm": "plain",
                 "embedding_norm": "plain", "qk_norm": "rms", "qk_norm_gain": False,
                 "rotary_layout": "halves-clockwise", "logit_cap": 9.0},
}  # fmt: skip
CHOICE = Task("copa", "COPA", "superglue", "choice", ("premise", "question"), ("accuracy",))
EXPORTED = {
    "gpt2": ("gpt2", _GPT2), "openai-gpt": ("openai-gpt", _GPT1),
    "openai-gpt with positions as classes": ("openai-gpt", {**_GPT1, "softmax": "all"}),
    "openai-gpt for labels": ("openai-gpt for labels", {**_GPT1, **_LABELS}),
    "openai-gpt for choices": ("openai-gpt for choices", {**_GPT1, "label_outputs": 1}),
    "gpt2 for labels": ("gpt2 for labels", {**_GPT2, **_LABELS}),
    "bert that judges pairs": ("bert", {**_ENCODER, **_PAIRS}),
    "albert with another width of the table": ("albert", {**_ALBERT, **_PAIRS}),
    "m2m_100": ("m2m_100", _M2M100), "marian": ("marian", _MARIAN), "t5": ("t5", _T5),
    "bart": ("bart", _BART),
}  # fmt: skip
for _name, (_fields, _pooler) in _ENCODERS.items():
    _labelled = {**_fields, **_LABELS, "pooler": _pooler}
    _models = {"": _fields, " for labels": _labelled, " for spans": {**_fields, **_SPANS}}
    _models |= {" for choices": {**_labelled, "label_outputs": 1}}
    EXPORTED |= {_name + _ending: (_name + _ending, each) for _ending, each in _models.items()}
del EXPORTED["modernbert for spans"]
EXPORTED["albert"] = ("albert", {**_ENCODER, "share": "all"})
EXPORTED["albert for spans"] = ("albert for spans", {**_ALBERT, **_SPANS, "share": "all"})
for _name, _fields in _DECODERS.items():
    EXPORTED[_name] = (_name, _fields)
    if _name not in WITHOUT_LABELS:
        _labelled = {key: each for key, each in _fields.items() if key != "logit_cap"}
        _labelled |= _LABELS
        EXPORTED[f"{_name} for labels"] = (f"{_name} for labels", _labelled)
"""The class that each becomes, and the fields of one that does."""
