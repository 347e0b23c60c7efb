"""Export to CTranslate2: its specs built from our config and weights, a certificate, the engine.

Steps and residual scales become factors of a sub-layer's last map or norm, missing offsets and
gains zeros and ones. Shared weights are repeated in each block; CTranslate2 writes equal tensors
once.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from sublayer.config.model import FFNS, POSITIONS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, is_factorised, n_rotated, stacks
from sublayer.data.tasks.figure import show_tokens, special_names
from sublayer.data.tokenizers.base import ByteTokenizer, Tokenizer, WrappedTokenizer
from sublayer.data.tokenizers.subword import BYTE_NAMES
from sublayer.decode.beam import BeamHypothesis, BeamSettings, search
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.errors import CheckpointError, ConfigError, extra_module
from sublayer.files.storage import as_typed, check_paths, new_folder
from sublayer.interop.certificate import CERTIFICATE, HIDDEN_STATES, LOGITS, CertificateBatch
from sublayer.interop.engines import describe_folder, open_engine
from sublayer.interop.exits import Exported
from sublayer.interop.folder import write_json
from sublayer.interop.foreign_config import ANY, COMMON, Rule, Table, networks, refused_fields
from sublayer.model.blocks import Attention, CrossAttention, FeedForward, Sublayer
from sublayer.model.context import Layout
from sublayer.model.layers import StackedLinear
from sublayer.model.positions import RelativePositions
from sublayer.model.transformer import Body, Decoder, Encoder, EncoderDecoder, Transformer
from sublayer.system.machine import choose_device
from sublayer.text_model import TextModel

NAME = "ctranslate2"
_CLASSES = {"decoder": "Generator", "encoder": "Encoder", "encoder-decoder": "Translator"}
_USES = {
    "decoder": "generate {} --prompt 'The' --temperature 0",
    "encoder": "embed {} < lines.txt",
    "encoder-decoder": "translate {} < lines.txt",
}
_ACTIVATIONS = {"relu": "RELU", "swish": "SWISH", "sigmoid": "Sigmoid", "gelu": "GELUTanh"}
_BLOCK, _FED = ("attention", "ffn"), ("attention", "cross", "ffn")
_PARALLEL = (("attention", "+ffn"), ("ffn", "+attention"))


def _names(config: ResolvedModel, index: int = 0) -> tuple[str, ...]:
    """Return the entries of a stack's block, without steps; parallel ones are marked."""
    block = stacks(config)[index].block
    return tuple(f"{'+' if entry.is_joined else ''}{entry.name}" for entry in block)


def _has_block(config: ResolvedModel) -> bool:
    return _names(config) in (_BLOCK, *(_PARALLEL if config.kind == "decoder" else ()))


def _has_order(config: ResolvedModel) -> bool:
    orders = ("pre", "post", *(("around",) if config.kind == "decoder" else ()))
    return config.norm_order in (orders if _names(config) == _BLOCK else ("pre",))


def _has_window(config: ResolvedModel) -> bool:
    window = config.attention_window
    return not isinstance(window, str) and window < config.max_len


def _unknown_networks(config: ResolvedModel) -> str:
    unknown = [name for name in networks(config) if FFNS[name].activation not in _ACTIVATIONS]
    return ", ".join(unknown)


_ADDED = ("sinusoidal", "learned", "rotary", "none")
_OF_ENCODERS = Rule(lambda config: config.kind == "encoder" or not config.label_outputs)
TABLE: Table = {
    **COMMON,
    **dict.fromkeys(
        (
            *("n_layers", "n_decoder_layers", "d_model", "n_heads", "d_head", "n_kv_heads"),
            *("d_ff", "d_embed", "vocab_size", "max_len", "project_embeddings", "embedding_norm"),
            *("segments", "gelu", "parallel_norm", "norm_affine", "norm_bias", "norm_eps"),
            *("final_norm", "rotary_base", "rotary_fraction", "window_pattern", "share"),
            *("rotary_local_base", "relative_buckets", "relative_distance", "softmax", "bias"),
            *("tie_embeddings", "head_bias", "embedding_scale", "residual_scale", "output_scale"),
            *("logit_cap", "attention_scale", "qk_norm_gain", "decoder_start", "pooler"),
            *("sentence_classes", "head_activation"),
        ),
        ANY,
    ),
    "kind": tuple(_CLASSES),
    "block": Rule(_has_block),
    # A block that follows from a refused one of the encoder is not named.
    "decoder_block": Rule(
        lambda config: (
            config.kind != "encoder-decoder" or _names(config, 1) == _FED or not _has_block(config)
        )
    ),
    "embedding_projection": Rule(
        lambda config: config.embedding_projection == "tokens" or not is_factorised(config)
    ),
    "ffn": Rule(lambda config: not _unknown_networks(config), _unknown_networks),
    "norm": ("layer", "rms"),
    "norm_order": Rule(_has_order),
    "positions": Rule(
        lambda config: (
            config.positions in (*_ADDED, "alibi" if config.kind == "decoder" else "relative")
        )
    ),
    "rotary_layout": ("halves", "interleaved"),
    "position_pattern": Rule(
        lambda config: (
            config.position_pattern == "P"
            or (config.positions == "rotary" and config.position_pattern[0] == "P")
        )
    ),
    "attention_window": Rule(lambda config: not _has_window(config)),
    "qk_norm": ("none", "rms", "layer"),
    "head": Rule(lambda config: config.kind == "encoder" or config.head == "linear"),
    "label_outputs": _OF_ENCODERS,
    "span_head": Rule(lambda config: config.kind == "encoder" or config.span_head == "none"),
}
"""Models that its specs can say; it reads prompts without windows."""


def export_ctranslate2(text_model: TextModel, out: Path, *, dtype: str | None = None) -> Exported:
    """Write a model as a new folder that CTranslate2 and ``--engine ctranslate2`` load.

    Raises as ``write`` does, ConfigError where ``out`` exists or cannot be written, and
    CheckpointError where it computes other numbers in float32. Nothing is written then.
    """
    check_paths(out, out)
    try:
        with new_folder(out) as partial:
            write(text_model, partial, dtype or "float32")
            certificate = certify_ctranslate2(text_model, partial, dtype or "float32")
            write_json(partial / CERTIFICATE, certificate)
    except OSError as error:
        raise ConfigError(
            f"cannot write {out}: {error.strerror or error}; name another folder"
        ) from None
    kind, lines = text_model.model.config.kind, []
    if (greedy := certificate.get("greedy")) is not None:
        lines.append(f"greedy tokens of {greedy['equal']} of {greedy['prompts']} prompts are equal")
    if (drift := certificate.get("drift")) is not None:
        lines.append(f"drift: {drift['bits']:+.4f} bits per {drift['per']} of {drift['text']}")
    following = f"sublayer {_USES[kind].format(as_typed(str(out)))} --engine {NAME}"
    has_tokenizer = text_model.tokenizer is not None
    return Exported(f"{NAME}.{_CLASSES[kind]}", certificate, has_tokenizer, following, lines)


def write(text_model: TextModel, folder: Path, dtype: str = "float32") -> None:
    """Write the folder that CTranslate2 loads, and the files of an engine, without a certificate.

    Raises ConfigError, naming every field that its specs cannot say, and for a dtype that the
    machine cannot compute; DataError without the library.
    """
    config, tokenizer = text_model.model.config, text_model.tokenizer
    refused = [f"model.kind = {config.kind}"]
    if config.kind in _CLASSES:
        refused = refused_fields(config, TABLE)
    if refused:
        raise ConfigError(
            f"{NAME} cannot represent {', '.join(refused)}: the model cannot be exported"
        )
    _check_dtype(dtype, ("cpu", "cuda"))
    spec = _Specs(text_model.model).spec
    names = token_names(tokenizer, config.vocab_size)
    end, pad, start = special_ids(text_model)
    unknown = None if tokenizer is None else tokenizer.unk_id
    for role, id_ in {"unk": pad if unknown is None else unknown, "bos": end, "eos": end}.items():
        setattr(spec.config, f"{role}_token", names[id_])
    spec.config.layer_norm_epsilon = config.norm_eps
    if config.kind == "encoder-decoder":
        spec.config.decoder_start_token = names[start]
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
    else:
        spec.register_vocabulary(names)
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    describe_folder(text_model, folder, NAME, dtype)


def special_ids(text_model: TextModel) -> tuple[int, int, int]:
    """Return the ids of the end, of padding, and of a decoder's start; 0 for a missing one."""
    tokenizer, config = text_model.tokenizer, text_model.model.config
    roles = ("end_id", "sep_id") if config.kind == "decoder" else ("sep_id", "end_id")
    ends = [getattr(tokenizer, role, None) for role in roles]
    end = next((id_ for id_ in ends if id_ is not None), 0)
    pad = getattr(tokenizer, "pad_id", None) or 0
    return end, pad, pad if config.decoder_start == "pad" else end


def token_names(tokenizer: Tokenizer | None, n_ids: int) -> list[str]:
    """Name all ids of a model, each once, as the tokenizer's file does where it has names."""
    names: dict[int, str] = {}
    if tokenizer is not None:
        inner = tokenizer
        while isinstance(inner, WrappedTokenizer):
            inner = inner.vocabulary
        listed = getattr(inner, "names", None) or show_tokens(np.arange(inner.vocab_size), inner)
        if isinstance(inner, ByteTokenizer):
            listed = sorted(BYTE_NAMES, key=BYTE_NAMES.__getitem__)
        names = {**dict(enumerate(listed)), **special_names(tokenizer)}
    unique: dict[str, None] = {}
    for id_ in range(n_ids):
        name = names.get(id_, f"<{id_}>")
        unique[f"{name}<{id_}>" if name in unique else name] = None
    return list(unique)


def _library() -> Any:
    return extra_module("ctranslate2", "exports to CTranslate2 and its engine", NAME)


def _check_dtype(dtype: str, devices: Sequence[str]) -> None:
    library = _library()
    types: set[str] = set()
    for device in devices:
        if device == "cpu" or library.get_cuda_device_count():
            types |= library.get_supported_compute_types(device)
    if dtype not in types:
        there = f", but {', '.join(sorted(types))}" if types else ": give --device cpu"
        raise ConfigError(f"{NAME} computes no {dtype} on this machine{there}")


class _Specs:
    """The spec of a model, filled with its weights."""

    def __init__(self, model: Transformer) -> None:
        from ctranslate2.specs import common_spec, transformer_spec

        self.common, self.transformer = common_spec, transformer_spec
        self.model, self.config = model, model.config
        if isinstance(model, EncoderDecoder):
            built = self.stack(model.source), self.stack(model)
            self.spec = transformer_spec.TransformerSpec(*built)
        elif isinstance(model, Encoder):
            self.spec = transformer_spec.TransformerEncoderModelSpec(self.stack(model))
        else:
            self.spec = transformer_spec.TransformerDecoderModelSpec(self.stack(model))

    def stack(self, body: Body) -> Any:
        """Return the spec of a stack."""
        config, shape = self.config, body.shape
        [network] = [entry.ffn for entry in shape.block if entry.ffn is not None]
        is_exact = network.activation == "gelu" and config.gelu == "exact"
        activation = "GELU" if is_exact else _ACTIVATIONS[network.activation]
        is_parallel = any(entry.is_joined for entry in shape.block)
        options: dict[str, Any] = {
            "num_layers": shape.n_layers,
            "num_heads": config.n_heads,
            "pre_norm": True,  # a place for a final norm, whatever the order
            "no_final_norm": config.final_norm == "none",
            "activation": self.common.Activation[activation],
            "layernorm_embedding": config.embedding_norm != "none",
            "relative_attention_bias": config.positions == "relative",
            "ffn_glu": network.is_gated,
            "rms_norm": config.norm == "rms",
            "num_heads_kv": None if config.n_kv_heads == config.n_heads else config.n_kv_heads,
            "head_dim": config.d_head,
            "qk_norm": config.qk_norm != "none",
        }
        if config.positions == "rotary":
            options |= {
                "rotary_dim": n_rotated(config, config.d_head),
                "rotary_interleave": config.rotary_layout == "interleaved",
                "rotary_base": config.rotary_base,
            }
        if shape.is_causal:
            spec = self.transformer.TransformerDecoderSpec(
                **options,
                with_encoder_attention=shape.is_fed,
                project_in_out=is_factorised(config),
                alibi=config.positions == "alibi",
                parallel_residual=is_parallel,
                shared_layer_norm=is_parallel and config.parallel_norm == "shared",
                pre_post_layer_norm=config.norm_order == "around",
            )
            self.head(spec)
        else:
            has_segments = body.segment_table is not None
            merge = self.common.EmbeddingsMerge["ADD" if has_segments else "CONCAT"]
            options |= {"num_source_embeddings": 1 + has_segments, "embeddings_merge": merge}
            spec = self.transformer.TransformerEncoderSpec(**options)
        spec.pre_norm = config.norm_order != "post"
        self.embeddings(spec, body)
        if config.final_norm != "none":
            self.norm(spec, "layer_norm", body.final_norm)
        forms = attention_forms(config, shape)
        for layer, block in enumerate(spec.layer):
            self.block(block, body, layer)
            if not all(form is None or form.has_positions for form in forms[layer]):
                block.self_attention.rotary_dim = np.int32(-1)  # none
        return spec

    def embeddings(self, spec: Any, body: Body) -> None:
        """Fill the tables of tokens, segments and positions, and their norm."""
        config, embedding = self.config, self.model.embedding
        table, scale, projection = embedding.weight, embedding.scale, embedding.projection
        if projection is not None and body.shape.is_causal:
            self.linear(spec.project_in, projection.weight, projection.bias)
        elif projection is not None:  # an encoder has no place for it
            table, scale = embedding(torch.arange(len(table))[None])[0], 1.0
        spec.scale_embeddings = False if scale == 1.0 else np.float32(scale)
        tables = [spec.embeddings] if body.shape.is_causal else spec.embeddings
        tables[0].weight = _stored(table)
        if body.segment_table is not None:
            tables[1].weight = _stored(body.segment_table(torch.arange(2)[None])[0] / scale)
        if config.embedding_norm != "none":
            self.norm(spec, "layernorm_embedding", body.embedding_norm)
        if POSITIONS[config.positions].in_attention == "nothing":
            vectors = body.positions.vectors(0, torch.arange(config.max_len), torch.float32)
            # Without a table it adds sinusoids.
            none = torch.zeros(config.max_len, config.d_model)
            spec.position_encodings.encodings = _stored(none if vectors is None else vectors)

    def block(self, spec: Any, body: Body, layer: int) -> None:
        """Fill a block: norms and functions, times their steps."""
        config, entries = self.config, body.shape.block
        pairs = zip(entries, body.stack.block(layer), strict=True)
        by_name: dict[str, Any] = {entry.name: sublayer for entry, sublayer in pairs}
        attention, ffn, cross = by_name["attention"], by_name["ffn"], by_name.get("cross")
        steps = attention.step_size, ffn.step_size
        if config.norm_order == "around":
            self.norm(spec, "input_layer_norm", attention.norm)
            self.norm(spec, "post_attention_layer_norm", attention.output_norm, steps[0])
            self.norm(spec, "pre_feedforward_layer_norm", ffn.norm)
            self.norm(spec, "post_feedforward_layer_norm", ffn.output_norm, steps[1])
            steps = 1.0, 1.0
        elif not any(entry.is_joined for entry in entries):
            self.norm(spec.self_attention, "layer_norm", attention.norm)
            self.norm(spec.ffn, "layer_norm", ffn.norm)
        elif config.parallel_norm == "shared":
            self.norm(spec, "shared_layer_norm", by_name[entries[0].name].norm)
        else:
            self.norm(spec, "input_layer_norm", attention.norm)
            self.norm(spec, "post_attention_layer_norm", ffn.norm)
        self.attention(spec.self_attention, attention, steps[0])
        if isinstance(body.positions, RelativePositions) and body.positions.table is not None:
            table, farthest = body.positions.table.weight, config.relative_distance
            spec.self_attention.relative_attention_bias = _stored(table)
            spec.self_attention.relative_attention_max_distance = np.int32(farthest)
        if cross is not None:
            self.norm(spec.attention, "layer_norm", cross.norm)
            self.attention(spec.attention, cross, cross.step_size)
        assert isinstance(ffn.function, FeedForward), "other sub-layers are refused"
        into, out = ffn.function.input, ffn.function.output
        if isinstance(into, StackedLinear):
            self.linear(spec.ffn.linear_0, *into.part(0, 1))
            self.linear(spec.ffn.linear_0_noact, *into.part(1, 2))
        else:
            self.linear(spec.ffn.linear_0, into.weight, into.bias)
        self.linear(spec.ffn.linear_1, out.weight, out.bias, steps[1])

    def attention(self, spec: Any, sublayer: Sublayer, step: float) -> None:
        """Fill the maps of an attention, its norms, and the scale of its scores."""
        function = sublayer.function
        assert isinstance(function, Attention | CrossAttention), "other sub-layers are refused"
        ranges = [(0, 1), (1, 3)] if isinstance(function, CrossAttention) else [(0, 3)]
        for linear, maps in zip(spec.linear, ranges, strict=False):
            self.linear(linear, *function.maps(*maps))
        self.linear(spec.linear[-1], function.output.weight, function.output.bias, step)
        spec.queries_scale = np.float32(function.scale)
        if function.query_norm is not None:
            self.norm(spec, "q_norm", function.query_norm, kind=self.config.qk_norm)
            self.norm(spec, "k_norm", function.key_norm, kind=self.config.qk_norm)

    def norm(
        self, spec: Any, name: str, norm: nn.Module | None, factor: float = 1.0, kind: str = ""
    ) -> None:
        """Fill a norm's gain and offset, times a factor; ``kind`` is the model's by default."""
        assert norm is not None, "the order has it"
        is_rms = (kind or self.config.norm) == "rms"
        part = self.common.LayerNormSpec(rms_norm=is_rms)
        width = int(getattr(norm, "d_model"))  # noqa: B009 - Module types it as Tensor
        gain, offset = getattr(norm, "weight", None), getattr(norm, "bias", None)
        part.gamma = _stored((torch.ones(width) if gain is None else gain) * factor)
        if not is_rms:
            part.beta = _stored((torch.zeros(width) if offset is None else offset) * factor)
        setattr(spec, name, part)

    def linear(self, spec: Any, weight: Tensor, bias: Tensor | None, factor: float = 1.0) -> None:
        """Fill a linear map, times a factor."""
        spec.weight = _stored(weight if factor == 1.0 else weight * factor)
        if bias is not None:
            spec.bias = _stored(bias * factor)

    def head(self, spec: Any) -> None:
        """Fill the map to logits, with its scale and cap."""
        head = self.model.vocabulary_head
        self.linear(spec.projection, *head.output(self.model.embedding.weight))
        if head.projection is not None:
            self.linear(spec.project_out, head.projection.weight, head.projection.bias)
        if head.scale != 1.0:
            spec.scale_outputs = np.float32(head.scale)
        if head.cap is not None:
            spec.final_logit_softcapping = np.float32(head.cap)


def _stored(tensor: Tensor) -> Tensor:
    # A copy, since quantisation scales in place.
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous()


_NO_END = 2**31 - 1
"""An id that no model has, since callers end texts."""
_NO_PENALTY = 1e-9
"""Exponent of the length, so small that scores stay log-probabilities; at 0 a search ends early."""


class CTranslate2:
    """CTranslate2's generator, translator or encoder of an exported folder.

    Its beam search closes the same hypotheses as ours, with these departures: probabilities are
    over the tokens that may follow, without padding, and at first without the end; a text that
    reaches its longest length is scored without the end; and of several hypotheses that end at
    once, those beyond the beam count too.
    """

    name = NAME
    write = staticmethod(write)

    def __init__(self, folder: Path, config: ResolvedModel, dtype: str, device: str | None) -> None:
        chosen = choose_device(device)
        _check_dtype(dtype, (chosen.type,))
        vocabulary = "shared_vocabulary" if config.kind == "encoder-decoder" else "vocabulary"
        self._names = json.loads((folder / f"{vocabulary}.json").read_text(encoding="utf-8"))
        self._ids = {name: id_ for id_, name in enumerate(self._names)}
        self._config = config
        self._program = getattr(_library(), _CLASSES[config.kind])(
            str(folder),
            device=chosen.type,
            device_index=chosen.index or 0,
            intra_threads=torch.get_num_threads(),
        )

    def _named(self, rows: Iterable[Sequence[int]]) -> list[list[str]]:
        return [[self._names[id_] for id_ in row] for row in rows]

    def generate(
        self,
        prompt: Int[Tensor, "B P"],
        n_tokens: int,
        sampling: Sampling,
        seed: int,
        until: Sequence[int] | None,
    ) -> Iterator[Int[Tensor, " B"]]:
        """Yield tokens as another thread generates them, or with ``until`` once all are."""
        _library().set_random_seed(seed % 2**32)
        rows = self._named(prompt.tolist())
        options: dict[str, Any] = {
            "max_length": n_tokens,
            "sampling_topk": 1 if sampling.temperature == 0.0 else sampling.top_k or 0,
            "sampling_topp": sampling.top_p or 1.0,
            "sampling_temperature": sampling.temperature or 1.0,
            "end_token": [*(until or [_NO_END])],
        }
        if until is not None:
            options |= {"include_prompt_in_result": False, "return_end_token": True}
            results = self._program.generate_batch(rows, **options)
            written = [result.sequences_ids[0] for result in results]
            yield from map(torch.tensor, zip_longest(*written, fillvalue=options["end_token"][0]))
            return
        steps = self._program.generate_tokens(rows, **options)
        with closing(steps):
            while step := list(islice(steps, len(prompt))):
                chosen = {row.batch_id: row.token_id for row in step}
                yield torch.tensor([chosen[row] for row in range(len(prompt))])

    def search(
        self, sources: Iterable[NDArray[np.integer]], settings: BeamSettings, **ids: int
    ) -> Iterator[tuple[int, list[BeamHypothesis]]]:
        """Translate some sources at a time, from the folder's first token."""
        end, pad = ids["end_id"], ids["pad_id"]

        def longest(numbered: tuple[int, NDArray[np.integer]]) -> int:
            most = settings.max_length(len(numbered[1]) + 1)
            return max(1, min(most, self._config.max_len - 1))

        waiting = enumerate(sources)
        while batch := list(islice(waiting, ids["sentences"])):
            for most, group in groupby(batch, longest):
                numbers, rows = zip(*group, strict=True)
                results = self._program.translate_batch(
                    self._named([*row.tolist(), end] for row in rows),
                    max_decoding_length=most,
                    max_input_length=0,
                    beam_size=settings.beam,
                    num_hypotheses=settings.beam,
                    length_penalty=_NO_PENALTY,
                    return_scores=True,
                    end_token=[end],
                    suppress_sequences=None if pad == end else self._named([[pad]]),
                )
                for number, result in zip(numbers, results, strict=True):
                    found = []
                    for names, log_p in zip(result.hypotheses, result.scores, strict=True):
                        written = np.array([self._ids[name] for name in names], dtype=np.int64)
                        n_tokens = len(names) + (len(names) < most)  # with its end, if any
                        score = settings.score(log_p, n_tokens)
                        found.append(BeamHypothesis(written, log_p, score))
                    yield number, sorted(found, key=lambda hypothesis: -hypothesis.score)

    def states(
        self, rows: Sequence[list[int]], segments: Sequence[list[int]]
    ) -> Float[Tensor, "N T D"]:
        """Compute the states of rows, padded to the longest."""
        types = {} if self._config.segments == "none" else {"token_type_ids": segments}
        return _array(self._program.forward_batch(rows, **types).last_hidden_state)

    def logits(self, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
        """Compute the next-token logits at every position of a decoder."""
        return _array(self._program.forward_batch(tokens.tolist()))

    def log_p(
        self, sources: Sequence[Sequence[int]], targets: Int[Tensor, "N T"]
    ) -> Float[Tensor, "N U"]:
        """Compute the log-probability of each token of targets, and of the end after them."""
        named = self._named(sources), self._named(targets.tolist())
        results = self._program.score_batch(*named, max_input_length=0)
        return torch.tensor([result.log_probs for result in results])


def _array(view: Any) -> Tensor:
    library = _library()
    return torch.from_numpy(
        np.array(view.to_device(library.Device.cpu).to(library.DataType.float32))
    )


_PROMPTS, _PROMPT_TOKENS, _NEW_TOKENS, _SEED = 8, 4, 32, 0
_REFUSED_SHARE = 1e-3
"""Difference in float32, as a share of the largest value, that rounding cannot explain."""


@torch.inference_mode()
def certify_ctranslate2(text_model: TextModel, folder: Path, dtype: str) -> dict[str, Any]:
    """Compare a written folder with its model: numbers, and the greedy tokens of random prompts.

    Numbers are logits of a decoder, states of an encoder, or log-probabilities of an
    encoder-decoder's target. For a quantised decoder also the drift of the loss on a text that the
    model samples. Raises CheckpointError where the numbers differ in float32 by more than rounding.
    """
    model, other = text_model.model, open_engine(folder, NAME, "cpu").model
    batch, what = CertificateBatch.draw(model.config), LOGITS
    rows = [row[mask].tolist() for row, mask in zip(batch.tokens, batch.mask, strict=True)]
    if isinstance(model, EncoderDecoder):
        what, targets = "log-probabilities", batch.tokens.flip(1)[:, 1:]
        end, _, start = special_ids(text_model)
        logits = model(batch.tokens, batch.mask, target=F.pad(targets, (1, 0), value=start)).logits
        wanted = F.pad(targets, (0, 1), value=end)[..., None]
        ours = logits.log_softmax(-1).gather(-1, wanted)[..., 0]
        theirs = other.engine.log_p(rows, targets)
    elif isinstance(model, Encoder):
        what, layout = HIDDEN_STATES, Layout.bidirectional(batch.tokens, batch.mask)
        ours, theirs = (
            each.hidden(batch.tokens, layout, segments=batch.segments).final[batch.mask]
            for each in (model, other)
        )
    else:
        ours, theirs = _logits(model, batch.tokens), other.engine.logits(batch.tokens)
    difference, largest = float((ours - theirs).abs().max()), float(ours.abs().max())
    if dtype == "float32" and not difference <= _REFUSED_SHARE * max(1.0, largest):
        raise CheckpointError(
            f"the model's {what} differ from {NAME}'s by {difference:.3g} (largest {largest:.3g}): "
            "it was not written"
        )
    certificate: dict[str, Any] = {
        "checked": True,
        **({} if what == LOGITS else {"compared": what}),
        "against": f"{NAME} {_library().__version__}",
        "tokens": {"rows": len(rows), "length": batch.tokens.shape[1], "seed": _SEED},
        "largest_difference": {dtype: difference},
        "largest_logit": largest,
    }
    if not isinstance(model, Encoder):
        certificate["greedy"] = _compare_greedy(text_model, other)
    if isinstance(model, Decoder) and dtype != "float32":
        certificate["drift"] = _drift(text_model, other)
    return certificate


def _logits(model: Transformer, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
    return model.logits(model.hidden(tokens, Layout.causal(tokens)).final)


def _compare_greedy(text_model: TextModel, other: Transformer) -> dict[str, int]:
    """Count the random prompts that both models continue alike."""
    config, generator = other.config, torch.Generator().manual_seed(_SEED)
    length = min(_PROMPT_TOKENS, config.max_len - 1)
    n_tokens = min(_NEW_TOKENS, config.max_len - length)
    prompts = torch.randint(config.vocab_size, (_PROMPTS, length), generator=generator)
    written = []
    for model in (text_model.model, other):
        if isinstance(model, EncoderDecoder):
            end, pad, start = special_ids(text_model)
            settings = BeamSettings(1, max_length_offset=n_tokens)
            sources = [row.numpy() for row in prompts]
            found = search(model, sources, settings, end_id=end, pad_id=pad, start_id=start)
            written.append([best.ids.tolist() for _, [best] in sorted(found, key=itemgetter(0))])
        else:
            assert isinstance(model, Decoder), "an encoder continues nothing"
            written.append(torch.stack([*generate(model, prompts, n_tokens, GREEDY)], 1).tolist())
    equal = sum(one == two for one, two in zip(*written, strict=True))
    return {"prompts": _PROMPTS, "tokens": n_tokens, "equal": equal}


def _drift(text_model: TextModel, other: Transformer) -> dict[str, Any]:
    """Compute how many more bits the other model needs for a text sampled from ours."""
    model, tokenizer = text_model.model, text_model.tokenizer
    assert isinstance(model, Decoder), "only a decoder samples"
    text = torch.zeros(2, 1, dtype=torch.long)
    n_tokens = min(128, model.config.max_len) - 1
    drawn = generate(model, text, n_tokens, Sampling(), seed=_SEED)
    text = torch.cat([text, torch.stack([*drawn], 1)], 1)
    targets, unit, size = text[:, 1:].flatten(), "token", 2 * n_tokens
    nats = [
        float(F.cross_entropy(logits[:, :-1].flatten(0, 1).double(), targets, reduction="sum"))
        for logits in (_logits(model, text), other.engine.logits(text))
    ]
    if tokenizer is not None and int(targets.max()) < tokenizer.vocab_size:
        unit, size = "byte", int(tokenizer.token_bytes[targets.numpy()].sum())
    bits = (nats[1] - nats[0]) / math.log(2) / size
    return {"text": f"{2 * n_tokens} tokens that the model samples", "per": unit, "bits": bits}
