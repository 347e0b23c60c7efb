"""Export to CTranslate2: its specs built from our config and weights, and its engine.

Steps and residual scales become factors of a sub-layer's last map or norm, missing offsets and
gains zeros and ones. Shared weights are repeated in each block; CTranslate2 writes equal tensors
once.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.model import POSITIONS
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import attention_forms, is_factorised, n_rotated, stacks
from sublayer.data.tasks.figure import show_tokens, special_names
from sublayer.data.tokenizers.base import ByteTokenizer, Tokenizer, WrappedTokenizer
from sublayer.data.tokenizers.subword import BYTE_NAMES
from sublayer.decode.beam import BeamHypothesis, BeamSettings
from sublayer.decode.sample import Sampling
from sublayer.errors import ConfigError, extra_module
from sublayer.files.storage import as_typed
from sublayer.interop.certificate import HIDDEN_STATES, LOGITS, CertificateBatch
from sublayer.interop.engines import Compared, Ends, Rows, export_engine, special_ids, token_logits
from sublayer.interop.foreign_config import ANY, COMMON, Rule, Table, activated_by
from sublayer.model.blocks import Attention, CrossAttention, FeedForward, Sublayer
from sublayer.model.context import Layout
from sublayer.model.layers import RMSNorm, StackedLinear
from sublayer.model.positions import RelativePositions
from sublayer.model.transformer import Body, Encoder, EncoderDecoder, Transformer
from sublayer.system.machine import choose_device
from sublayer.system.terminal import note
from sublayer.text_model import TextModel

NAME = "ctranslate2"
_CLASSES = {"decoder": "Generator", "encoder": "Encoder", "encoder-decoder": "Translator"}
_USES = {
    "decoder": "generate {} --prompt 'The' --temperature 0",
    "encoder": "embed {} < lines.txt",
    "encoder-decoder": "translate {} < lines.txt",
}
_ACTIVATIONS = {"relu": "RELU", "swish": "SWISH", "sigmoid": "Sigmoid", "gelu": "GELUTanh"}
_IN_TURN, _FED = ("attention", "ffn"), ("attention", "cross", "ffn")
_PARALLEL = (("attention", "+ffn"), ("ffn", "+attention"))
_ADDED = ("sinusoidal", "learned", "rotary", "none")
_ANY = """
    n_layers n_decoder_layers d_model n_heads d_head n_kv_heads d_ff d_embed vocab_size max_len
    project_embeddings embedding_norm segments gelu parallel_norm norm_affine norm_bias norm_eps
    final_norm rotary_base rotary_local_base rotary_fraction window_pattern relative_buckets
    relative_distance share softmax bias tie_embeddings embedding_scale residual_scale output_scale
    logit_cap attention_scale qk_norm_gain head_bias head_activation decoder_start pooler
    sentence_classes
"""


def _names(config: ResolvedModel, index: int = 0) -> tuple[str, ...]:
    """Return the entries of a stack's block, without steps; parallel ones are marked."""
    block = stacks(config)[index].block
    return tuple(f"{'+' if entry.is_joined else ''}{entry.name}" for entry in block)


def _has_block(config: ResolvedModel) -> bool:
    return _names(config) in (_IN_TURN, *(_PARALLEL if config.kind == "decoder" else ()))


def _has_order(config: ResolvedModel) -> bool:
    orders = ("pre", "post", *(("around",) if config.kind == "decoder" else ()))
    return config.norm_order in (orders if _names(config) == _IN_TURN else ("pre",))


TABLE: Table = {
    **COMMON,
    **dict.fromkeys(_ANY.split(), ANY),
    "kind": tuple(_CLASSES),
    "block": Rule(_has_block),
    # One that follows from a refused block of the encoder is not named.
    "decoder_block": Rule(
        lambda c: c.kind != "encoder-decoder" or _names(c, 1) == _FED or not _has_block(c)
    ),
    "embedding_projection": Rule(
        lambda c: c.embedding_projection == "tokens" or not is_factorised(c)
    ),
    "ffn": activated_by(_ACTIVATIONS),
    "norm": ("layer", "rms"),
    "norm_order": Rule(_has_order),
    "positions": Rule(
        lambda c: c.positions in (*_ADDED, "alibi" if c.kind == "decoder" else "relative")
    ),
    "position_pattern": Rule(
        lambda c: (
            c.position_pattern == "P" or (c.positions == "rotary" and c.position_pattern[0] == "P")
        )
    ),
    "rotary_layout": ("halves", "interleaved"),
    # It reads prompts without windows.
    "attention_window": Rule(
        lambda c: isinstance(c.attention_window, str) or c.attention_window >= c.max_len
    ),
    "qk_norm": ("none", "rms", "layer"),
    "head": Rule(lambda c: c.kind == "encoder" or c.head == "linear"),
    "label_outputs": Rule(lambda c: c.kind == "encoder" or not c.label_outputs),
    "span_head": Rule(lambda c: c.kind == "encoder" or c.span_head == "none"),
}


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
    return extra_module(NAME, "exports to CTranslate2 and its engine", NAME)


def _check_dtype(dtype: str, devices: Sequence[str]) -> None:
    library = _library()
    there = [name for name in devices if name == "cpu" or library.get_cuda_device_count()]
    types = set[str]().union(*map(library.get_supported_compute_types, there))
    if dtype not in types:
        known = f", but {', '.join(sorted(types))}" if types else ": give --device cpu"
        raise ConfigError(f"{NAME} computes no {dtype} on this machine{known}")


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
        has_segments = body.segment_table is not None
        options: dict[str, Any] = {
            "num_layers": shape.n_layers, "num_heads": config.n_heads, "head_dim": config.d_head,
            "num_heads_kv": None if config.n_kv_heads == config.n_heads else config.n_kv_heads,
            "pre_norm": True,  # a place for a final norm, whatever the order
            "no_final_norm": config.final_norm == "none", "rms_norm": config.norm == "rms",
            "activation": self.common.Activation[activation], "ffn_glu": network.is_gated,
            "layernorm_embedding": config.embedding_norm != "none",
            "relative_attention_bias": config.positions == "relative",
            "qk_norm": config.qk_norm != "none",
        }  # fmt: skip
        if config.positions == "rotary":
            options |= {
                "rotary_dim": n_rotated(config, config.d_head), "rotary_base": config.rotary_base,
                "rotary_interleave": config.rotary_layout == "interleaved",
            }  # fmt: skip
        if shape.is_causal:
            options |= {
                "with_encoder_attention": shape.is_fed, "project_in_out": is_factorised(config),
                "alibi": config.positions == "alibi", "parallel_residual": is_parallel,
                "shared_layer_norm": is_parallel and config.parallel_norm == "shared",
                "pre_post_layer_norm": config.norm_order == "around",
            }  # fmt: skip
            spec = self.transformer.TransformerDecoderSpec(**options)
            head = self.model.vocabulary_head
            spec.projection = self.linear(*head.output(self.model.embedding.weight))
            if head.projection is not None:
                spec.project_out = self.linear(head.projection.weight, head.projection.bias)
            if head.scale != 1.0:
                spec.scale_outputs = np.float32(head.scale)
            if head.cap is not None:
                spec.final_logit_softcapping = np.float32(head.cap)
        else:
            merge = self.common.EmbeddingsMerge["ADD" if has_segments else "CONCAT"]
            options |= {"num_source_embeddings": 1 + has_segments, "embeddings_merge": merge}
            spec = self.transformer.TransformerEncoderSpec(**options)
        spec.pre_norm = config.norm_order != "post"
        self.embeddings(spec, body)
        if config.final_norm != "none":
            spec.layer_norm = self.norm(body.final_norm)
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
            spec.project_in = self.linear(projection.weight, projection.bias)
        elif projection is not None:  # an encoder has no place for it
            table, scale = embedding(torch.arange(len(table))[None])[0], 1.0
        spec.scale_embeddings = False if scale == 1.0 else np.float32(scale)
        tables = [spec.embeddings] if body.shape.is_causal else spec.embeddings
        tables[0].weight = _stored(table)
        if body.segment_table is not None:
            tables[1].weight = _stored(body.segment_table(torch.arange(2)[None])[0] / scale)
        if config.embedding_norm != "none":
            spec.layernorm_embedding = self.norm(body.embedding_norm)
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
            spec.input_layer_norm = self.norm(attention.norm)
            spec.post_attention_layer_norm = self.norm(attention.output_norm, steps[0])
            spec.pre_feedforward_layer_norm = self.norm(ffn.norm)
            spec.post_feedforward_layer_norm = self.norm(ffn.output_norm, steps[1])
            steps = 1.0, 1.0
        elif not any(entry.is_joined for entry in entries):
            spec.self_attention.layer_norm = self.norm(attention.norm)
            spec.ffn.layer_norm = self.norm(ffn.norm)
        elif config.parallel_norm == "shared":
            spec.shared_layer_norm = self.norm(by_name[entries[0].name].norm)
        else:
            spec.input_layer_norm = self.norm(attention.norm)
            spec.post_attention_layer_norm = self.norm(ffn.norm)
        self.attention(spec.self_attention, attention, steps[0])
        if isinstance(body.positions, RelativePositions) and body.positions.table is not None:
            table, farthest = body.positions.table.weight, config.relative_distance
            spec.self_attention.relative_attention_bias = _stored(table)
            spec.self_attention.relative_attention_max_distance = np.int32(farthest)
        if cross is not None:
            spec.attention.layer_norm = self.norm(cross.norm)
            self.attention(spec.attention, cross, cross.step_size)
        assert isinstance(ffn.function, FeedForward), "other sub-layers are refused"
        into, out = ffn.function.input, ffn.function.output
        if isinstance(into, StackedLinear):
            spec.ffn.linear_0 = self.linear(*into.part(0, 1))
            spec.ffn.linear_0_noact = self.linear(*into.part(1, 2))
        else:
            spec.ffn.linear_0 = self.linear(into.weight, into.bias)
        spec.ffn.linear_1 = self.linear(out.weight, out.bias, steps[1])

    def attention(self, spec: Any, sublayer: Sublayer, step: float) -> None:
        """Fill the maps of an attention, its norms, and the scale of its scores."""
        function = sublayer.function
        assert isinstance(function, Attention | CrossAttention), "other sub-layers are refused"
        ranges = [(0, 1), (1, 3)] if isinstance(function, CrossAttention) else [(0, 3)]
        maps = [self.linear(*function.maps(*each)) for each in ranges]
        spec.linear = [*maps, self.linear(function.output.weight, function.output.bias, step)]
        spec.queries_scale = np.float32(function.scale)
        if function.query_norm is not None:
            spec.q_norm, spec.k_norm = self.norm(function.query_norm), self.norm(function.key_norm)

    def norm(self, norm: Any, factor: float = 1.0) -> Any:
        """Return a norm's gain and offset, times a factor."""
        part = self.common.LayerNormSpec(isinstance(norm, RMSNorm))
        gain, offset = getattr(norm, "weight", None), getattr(norm, "bias", None)
        part.gamma = _stored((torch.ones(norm.d_model) if gain is None else gain) * factor)
        if hasattr(part, "beta"):
            part.beta = _stored((torch.zeros(norm.d_model) if offset is None else offset) * factor)
        return part

    def linear(self, weight: Tensor, bias: Tensor | None, factor: float = 1.0) -> Any:
        """Return a linear map, times a factor."""
        part = self.common.LinearSpec()
        part.weight = _stored(weight if factor == 1.0 else weight * factor)
        if bias is not None:
            part.bias = _stored(bias * factor)
        return part


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

    name = library = NAME
    table = TABLE

    @staticmethod
    def write(text_model: TextModel, folder: Path, dtype: str) -> None:
        """Write the model and its vocabulary."""
        config, tokenizer = text_model.model.config, text_model.tokenizer
        _check_dtype(dtype, ("cpu", "cuda"))
        spec = _Specs(text_model.model).spec
        names = token_names(tokenizer, config.vocab_size)
        ids = special_ids(text_model)
        end, unknown = ids["end_id"], getattr(tokenizer, "unk_id", None)
        spec.config.bos_token = spec.config.eos_token = names[end]
        spec.config.unk_token = names[ids["pad_id"] if unknown is None else unknown]
        spec.config.layer_norm_epsilon = config.norm_eps
        if config.kind == "encoder-decoder":
            spec.config.decoder_start_token = names[ids["start_id"]]
            spec.register_source_vocabulary(names)
            spec.register_target_vocabulary(names)
        else:
            spec.register_vocabulary(names)
        spec.validate()
        spec.optimize(quantization=dtype)
        spec.save(str(folder))

    @staticmethod
    def describe(config: ResolvedModel, folder: Path) -> tuple[str, str]:
        """Return the class that loads a folder, and a command that uses it."""
        use = _USES[config.kind].format(as_typed(str(folder)))
        return f"{NAME}.{_CLASSES[config.kind]}", f"sublayer {use} --engine {NAME}"

    def __init__(self, folder: Path, config: ResolvedModel, dtype: str, device: str | None) -> None:
        chosen = choose_device(device)
        _check_dtype(dtype, (chosen.type,))
        vocabulary = "shared_vocabulary" if config.kind == "encoder-decoder" else "vocabulary"
        self._names = json.loads((folder / f"{vocabulary}.json").read_text(encoding="utf-8"))
        self._ids = {name: id_ for id_, name in enumerate(self._names)}
        self._has_segments = config.segments != "none"
        self._program = getattr(_library(), _CLASSES[config.kind])(
            str(folder),
            device=chosen.type,
            device_index=chosen.index or 0,
            intra_threads=torch.get_num_threads(),
        )

    def _named(self, rows: Iterable[list[int]]) -> list[list[str]]:
        return [[self._names[id_] for id_ in row] for row in rows]

    def generate(
        self, prompt: Tensor, n_tokens: int, sampling: Sampling, seed: int, until: Ends
    ) -> Iterator[Tensor]:
        """Yield tokens as another thread generates them, or with ``until`` once all are."""
        if sampling.temperature > 0.0:
            note(f"sampled by {NAME}, whose draws differ from sublayer's of the same seed")
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
        self, rows: Rows, longest: Sequence[int], settings: BeamSettings, **ids: int
    ) -> Iterator[list[BeamHypothesis]]:
        """Translate sources from the folder's first token, neighbours of one length together."""
        end, pad = ids["end_id"], ids["pad_id"]
        for most, group in groupby(zip(longest, rows, strict=True), itemgetter(0)):
            results = self._program.translate_batch(
                self._named(row for _, row in group),
                max_decoding_length=most,
                max_input_length=0,
                beam_size=settings.beam,
                num_hypotheses=settings.beam,
                length_penalty=_NO_PENALTY,
                return_scores=True,
                end_token=[end],
                suppress_sequences=None if pad == end else self._named([[pad]]),
            )
            for result in results:
                found = []
                for names, log_p in zip(result.hypotheses, result.scores, strict=True):
                    written = np.array([self._ids[name] for name in names], dtype=np.int64)
                    n_tokens = len(names) + (len(names) < most)  # with its end, if any
                    score = settings.score(log_p, n_tokens)
                    found.append(BeamHypothesis(written, log_p, score))
                yield sorted(found, key=lambda hypothesis: -hypothesis.score)

    def states(self, rows: Rows, segments: Rows) -> Float[Tensor, "N T D"]:
        """Compute the states of rows, padded to the longest."""
        types = {"token_type_ids": segments} if self._has_segments else {}
        return _array(self._program.forward_batch(rows, **types).last_hidden_state)

    def logits(self, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
        """Compute the next-token logits at every position of a decoder."""
        return _array(self._program.forward_batch(tokens.tolist()))

    def compare(
        self, text_model: TextModel, other: Transformer, batch: CertificateBatch
    ) -> Compared:
        """Return states, logits, or log-probabilities of an encoder-decoder's target."""
        model, tokens, mask = text_model.model, batch.tokens, batch.mask
        if isinstance(model, EncoderDecoder):
            targets, ids = tokens.flip(1)[:, 1:], special_ids(text_model)
            target = F.pad(targets, (1, 0), value=ids["start_id"])
            wanted = F.pad(targets, (0, 1), value=ids["end_id"])[..., None]
            ours = model(tokens, mask, target=target).logits.log_softmax(-1).gather(-1, wanted)
            sources = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
            named = self._named(sources), self._named(targets.tolist())
            results = self._program.score_batch(*named, max_input_length=0)
            theirs = torch.tensor([result.log_probs for result in results])
            return "log-probabilities", [(ours[..., 0], theirs)]
        if isinstance(model, Encoder):
            layout = Layout.bidirectional(tokens, mask)
            ours, theirs = (
                each.hidden(tokens, layout, segments=batch.segments).final[mask]
                for each in (model, other)
            )
            return HIDDEN_STATES, [(ours, theirs)]
        return LOGITS, [(token_logits(model, tokens), self.logits(tokens))]


def _array(view: Any) -> Tensor:
    library = _library()
    return torch.from_numpy(
        np.array(view.to_device(library.Device.cpu).to(library.DataType.float32))
    )


export_ctranslate2 = partial(export_engine, name=NAME)
