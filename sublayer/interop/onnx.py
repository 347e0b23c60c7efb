"""ONNX files of a model: traced with dynamic shapes, with a cache, compared by ONNX Runtime."""

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import asked_heads, key_heads, stacks
from sublayer.decode.beam import BeamHypothesis, BeamSettings, search_rows
from sublayer.decode.sample import Sampling
from sublayer.errors import ConfigError, extra_module
from sublayer.interop.certificate import CertificateBatch
from sublayer.interop.engines import Compared, Ends, Rows, export_engine
from sublayer.interop.foreign_config import ANY, Rule, Table
from sublayer.model.blocks import CrossAttention, LstmLayer
from sublayer.model.cache import Cache, KeyValues, MemoryKeyValues
from sublayer.model.context import Layout, Memory
from sublayer.model.transformer import Encoder, EncoderDecoder, Lstm, Transformer
from sublayer.text_model import TextModel

_EXTRA, _WHAT = "onnx", "ONNX files"
WHOLE, ENCODER, DECODER = "model.onnx", "encoder_model.onnx", "decoder_model.onnx"
TOKENS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
SOURCE_MASK = "encoder_attention_mask"
STATES, LOGITS = "last_hidden_state", "logits"
_PAST, _PRESENT = "past_key_values", "present"
_OUTPUTS = {
    "vocabulary": [LOGITS],
    "pooler": ["pooler_output"],
    "sentence": ["sentence_logits"],
    "label": ["label_logits"],
    "span": ["start_logits", "end_logits"],
}
"""Names of each head's outputs."""
_OF_POSITIONS = (STATES, LOGITS, "start_logits", "end_logits")
_BATCH, _LENGTH, _SOURCE, _TOTAL = "batch", "length", "source_length", "total_length"
_CACHED = "past_length"
_EXAMPLE = {_BATCH: 3, _LENGTH: 5, _SOURCE: 7, _CACHED: 4, _TOTAL: 9}
"""Sizes of the dynamic axes, all different, when a file is traced."""
TABLE: Table = {
    **dict.fromkeys(ResolvedModel.model_fields, ANY),
    # Its ends follow a search for starts.
    "span_head": Rule(
        lambda config: config.span_head != "joint",
        lambda config: "joint (fine-tune with model.span_head=independent)",
    ),
}


class _Growing(KeyValues):
    """Keys and values of a traced self-attention: the past's, then those of all tokens."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.pair = self._keys, self._values = keys, values

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.pair
        self.pair = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        return self.pair


class _Constant(MemoryKeyValues):
    """Keys and values of a source, which another file has computed."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__(keys.dtype)
        self._pair = keys, values


class _TracedCache(Cache):
    """Cache of a traced pass, by block and entry of the executed attentions."""

    def __init__(self, states: Mapping[tuple[int, int], _Growing | _Constant]) -> None:
        self._key_values = {**states}


def _places(config: ResolvedModel, attends_to: str) -> list[tuple[int, int]]:
    stack = stacks(config)[-1]
    return [
        (layer, index)
        for layer in range(stack.n_layers)
        for index, entry in enumerate(stack.block)
        if entry.kind.attends_to == attends_to
    ]


def _answers(model: Transformer, final: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
    """Return final states, and the outputs of every head, by their names in a file."""
    answers = {STATES: final}
    for head, output in model.outputs(final, mask).items():
        if head == "vocabulary":
            # Those of positions, if any, follow.
            output = output[..., : model.config.vocab_size]
        parts = output.unbind(-1) if head == "span" else (output,)
        answers |= dict(zip(_OUTPUTS[head], parts, strict=True))
    return answers


def _of_texts(
    model: Transformer, tokens: Tensor, mask: Tensor, segments: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the answers to whole texts, of which ``mask`` is True at real tokens."""
    lay_out = Layout.bidirectional if isinstance(model, Encoder) else Layout.causal
    final = model.hidden(tokens, lay_out(tokens, mask), segments=segments).final
    return _answers(model, final, mask)


def _read_texts(
    model: Transformer, tokens: Tensor, mask: Tensor, *segments: Tensor
) -> Iterable[Tensor]:
    if not isinstance(model, Lstm):
        return _of_texts(model, tokens, mask > 0, *segments).values()
    states = [torch.zeros(tokens.shape[0], model.config.d_model)] * 2 * model.config.n_layers
    final, _ = _lstm_states(model, tokens, states)
    return _answers(model, final, mask > 0).values()


def _read_source(model: Transformer, tokens: Tensor, mask: Tensor) -> Iterable[Tensor]:
    """Return the states of a source, and its keys and values of every cross-attention."""
    assert isinstance(model, EncoderDecoder), "other models read no source"
    states = model.encode(tokens, mask > 0).states
    outputs = [states]
    for layer, index in _places(model.config, "memory"):
        function = model.stack.block(layer)[index].function
        assert isinstance(function, CrossAttention), "it reads the memory"
        outputs += function.key_value(states)
    return outputs


def _step(model: Transformer, tokens: Tensor, mask: Tensor, *cached: Tensor) -> Iterable[Tensor]:
    """Return the answers to tokens behind a cache, and the next cache; a source has its mask."""
    pairs = zip(cached[::2], cached[1::2], strict=True)
    grown = {place: _Growing(*next(pairs)) for place in _places(model.config, "itself")}
    constant = {place: _Constant(*next(pairs)) for place in _places(model.config, "memory")}
    n_past = cached[0].shape[2] if grown else mask.shape[1] - tokens.shape[1]
    memory = None
    if isinstance(model, EncoderDecoder):
        memory = Memory(torch.zeros(1, 1, 1), Layout.reading(mask, mask > 0))
        layout = Layout.causal(tokens, past=n_past)
    else:
        # For the trace, where each axis is a symbol.
        torch._check(mask.shape[1] == n_past + tokens.shape[1])  # type: ignore[no-untyped-call]
        past, new = mask[:, :n_past] > 0, mask[:, n_past:] > 0
        layout = Layout.causal(tokens, new, past=n_past, past_mask=past)
    cache = _TracedCache({**grown, **constant})
    final = model.hidden(tokens, layout, memory=memory, cache=cache).final
    return chain(_answers(model, final).values(), *(each.pair for each in grown.values()))


def _lstm_step(model: Transformer, tokens: Tensor, *states: Tensor) -> Iterable[Tensor]:
    final, after = _lstm_states(model, tokens, states)
    return chain(_answers(model, final).values(), after)


def _lstm_states(
    model: Transformer, tokens: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Run an LSTM by ONNX's operator, from output and cell of each layer; return both after it."""
    (n_rows, n_tokens), width = tokens.shape, model.config.d_model
    x = model.enter(model.embedding, tokens, torch.arange(n_tokens)).transpose(0, 1)  # [T, B, D]
    after: list[Tensor] = []
    for layer in range(model.config.n_layers):
        (sublayer,) = model.stack.block(layer)
        assert isinstance(sublayer, LstmLayer), "an LSTM has no other layers"
        maps = {}
        for name, value in sublayer.function.named_parameters():
            # From the order i, f, g, o of PyTorch to i, o, f, g.
            order = [value[n * width : (n + 1) * width] for n in (0, 3, 1, 2)]
            maps[name] = torch.cat(order)[None]
        biases = [maps[name] for name in ("bias_ih_l0", "bias_hh_l0") if name in maps]
        bias = torch.cat(biases, 1) if biases else None
        before = [state[None] for state in states[2 * layer : 2 * layer + 2]]
        y, output, cell = torch.onnx.ops.symbolic_multi_out(
            "LSTM",
            [x, maps["weight_ih_l0"], maps["weight_hh_l0"], bias, None, *before],
            {"hidden_size": width},
            dtypes=[x.dtype] * 3,
            shapes=[[n_tokens, 1, n_rows, width], *[[1, n_rows, width]] * 2],
        )
        x = y[:, 0]
        after += [output[0], cell[0]]
    final: Tensor = model.final_norm(x.transpose(0, 1))
    return final, after


class _File(nn.Module):
    """A file: a function of a model and of flat tensors, in the order of inputs and outputs."""

    def __init__(
        self,
        model: Transformer,
        name: str,
        function: Callable[..., Iterable[Tensor]],
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Sequence[str],
    ) -> None:
        super().__init__()
        self.model, self.name, self.function = model, name, function
        self.inputs, self.outputs = inputs, outputs

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return (*self.function(self.model, *tensors),)


_Axes = dict[str, tuple[int | str, ...]]
"""Axes of inputs, those of varying size by name."""


def _slots(n: int, parts: Iterable[str], *axes: int | str) -> tuple[_Axes, list[str]]:
    """Return the inputs of a cache of ``n`` slots, and the names of its outputs."""
    names = [f"{number}.{part}" for number, part in product(range(n), parts)]
    past: _Axes = {f"{_PAST}.{name}": (_BATCH, *axes) for name in names}
    return past, [f"{_PRESENT}.{name}" for name in names]


def _files(model: Transformer) -> list[_File]:
    config = model.config
    answers = [STATES, *chain(*(_OUTPUTS[name] for name in model.heads))]
    tokens: _Axes = {TOKENS: (_BATCH, _LENGTH)}
    text: _Axes = {**tokens, MASK: (_BATCH, _LENGTH)}
    if isinstance(model, Encoder) or [*model.heads] != ["vocabulary"]:
        if model.segment_table is not None:
            text[SEGMENTS] = (_BATCH, _LENGTH)
        return [_File(model, WHOLE, _read_texts, text, answers)]
    if isinstance(model, Lstm):
        past, present = _slots(config.n_layers, ("output", "cell"), config.d_model)
        return [_File(model, WHOLE, _lstm_step, tokens | past, answers + present)]
    is_fed, heads, width = isinstance(model, EncoderDecoder), key_heads(config), config.d_head
    n_own, n_fed = (len(_places(config, which)) for which in ("itself", "memory"))
    parts = ("decoder.key", "decoder.value") if is_fed else ("key", "value")
    past, present = _slots(n_own, parts, heads, _CACHED, width)
    if not is_fed:
        tokens[MASK] = (_BATCH, _TOTAL)
        return [_File(model, WHOLE, _step, tokens | past, answers + present)]
    parts = ("encoder.key", "encoder.value")
    constant, computed = _slots(n_fed, parts, heads, _SOURCE, width)
    tokens[SOURCE_MASK] = (_BATCH, _SOURCE)
    return [
        _File(model, ENCODER, _read_source, text, [STATES, *computed]),
        _File(model, DECODER, _step, tokens | past | constant, answers + present),
    ]


def _trace(file: _File, path: Path) -> None:
    """Trace a file's function and write it, above 2 GB with the weights beside it."""
    script = extra_module("onnxscript", _WHAT, _EXTRA)
    op = script.opset18

    def cosine(x: Any) -> Any:
        if x.dtype != script.ir.DataType.DOUBLE:
            return op.Cos(x)
        # In float64 ONNX Runtime has sines alone.
        return op.Sin(op.Add(x, op.Constant(value=script.ir.tensor(math.pi / 2, dtype=x.dtype))))

    examples, varying = [], []
    dims = {axis: torch.export.Dim(axis) for axis in _EXAMPLE}
    for name, axes in file.inputs.items():
        shape = [_EXAMPLE[axis] if isinstance(axis, str) else axis for axis in axes]
        dtype = torch.float32 if name.startswith(_PAST) else torch.long
        examples.append(torch.ones(shape, dtype=dtype))
        varying.append({n: dims[axis] for n, axis in enumerate(axes) if isinstance(axis, str)})
    log, level = logging.getLogger("torch.onnx"), logging.getLogger("torch.onnx").level
    # Warnings are of modules that the exporter lacks.
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        log.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                file,
                (*examples,),
                input_names=[*file.inputs],
                output_names=file.outputs,
                dynamic_shapes=((*varying,),),
                custom_translation_table={torch.ops.aten.cos.default: cosine},
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().partition("\n")[0]
            raise ConfigError(f"the model cannot be traced for ONNX: {reason:.200}") from error
        finally:
            log.setLevel(level)
    assert program is not None, "torch.export makes a program"
    for node in program.model.graph:
        node.metadata_props.clear()  # paths and lines of the traced code
    program.save(path)


class OnnxFile:
    """A file opened by ONNX Runtime on the CPU."""

    def __init__(self, path: Path) -> None:
        runtime = extra_module("onnxruntime", _WHAT, _EXTRA)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.shapes: dict[str, list[int | str]] = {x.name: x.shape for x in session.get_inputs()}
        """Shape of each input, a dynamic axis by name."""
        self._outputs = [x.name for x in session.get_outputs()]
        self._session = session

    def run(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute all outputs by name, from the file's inputs among those given."""
        arrays = {name: feeds[name].contiguous().numpy() for name in self.shapes}
        outputs = self._session.run(self._outputs, arrays)
        return dict(zip(self._outputs, map(torch.from_numpy, outputs), strict=True))


class OnnxReader:
    """Reads the tokens of a decoder's rows in turn; ``constant`` are inputs of every call."""

    def __init__(self, file: OnnxFile, n_rows: int, constant: Mapping[str, Tensor]) -> None:
        self._file, self._constant = file, constant
        self._length = 0
        self._past = {
            name: torch.zeros([n_rows, *(n if isinstance(n, int) else 0 for n in shape[1:])])
            for name, shape in file.shapes.items()
            if name.startswith(_PAST) and name not in constant
        }

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Append tokens, and return the outputs; ``mask`` is True at real tokens of all read."""
        self._length += tokens.shape[1]
        if mask is None:
            mask = torch.ones(tokens.shape[0], self._length, dtype=torch.bool)
        feeds = {TOKENS: tokens, MASK: mask.long(), **self._constant, **self._past}
        outputs = self._file.run(feeds)
        self._past = {name: outputs[name.replace(_PAST, _PRESENT)] for name in self._past}
        return outputs

    def last_logits(self, tokens: Tensor) -> Tensor:
        """Append tokens, and return the logits after the last, ``[B, V]``."""
        return self.read(tokens)[LOGITS][:, -1]

    def take_rows(self, rows: Tensor) -> None:
        """Select ``rows``, in their order; rows may repeat."""
        self._constant = {name: value[rows] for name, value in self._constant.items()}
        self._past = {name: value[rows] for name, value in self._past.items()}


class Onnx:
    """Engine by ONNX Runtime and the files of a folder, with our searches and draws."""

    name, library = "onnx", "onnxruntime"
    table = TABLE

    @staticmethod
    def write(text_model: TextModel, folder: Path, dtype: str) -> None:
        """Write the model's ONNX files."""
        model = text_model.model
        if model.embedding.weight.dtype != torch.float32:
            model = copy.deepcopy(model).float()
        for file in _files(model):
            _trace(file, folder / file.name)

    @staticmethod
    def describe(config: ResolvedModel, folder: Path) -> tuple[str, str]:
        """Return the class that loads the last file of a folder, and a line of Python for it."""
        file = folder / (DECODER if config.kind == "encoder-decoder" else WHOLE)
        session = "onnxruntime.InferenceSession"
        return session, f"{session}({str(file)!r})"

    def __init__(self, folder: Path, config: ResolvedModel, dtype: str, device: str | None) -> None:
        if device not in (None, "cpu"):
            raise ConfigError(
                f"--device {device} has no effect with --engine {self.name}, which computes on the "
                "CPU: leave it out"
            )
        is_fed = config.kind == "encoder-decoder"
        self._continues = [*asked_heads(config)] == ["vocabulary"]
        self._source = OnnxFile(folder / ENCODER) if is_fed else None
        self._file = OnnxFile(folder / (DECODER if is_fed else WHOLE))

    def generate(
        self, prompt: Tensor, n_tokens: int, sampling: Sampling, seed: int, until: Ends
    ) -> Iterator[Tensor]:
        """Yield the tokens after prompts ``[B, P]``, drawn as from a model, one at a time."""
        if not self._continues:
            raise ConfigError(
                f"--engine {self.name} continues no text by a model with heads for tasks: leave it "
                "out"
            )
        reader = OnnxReader(self._file, len(prompt), {})
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n_tokens):
            prompt = sampling.choose(reader.last_logits(prompt), generator)[:, None]
            yield prompt[:, 0]

    def search(
        self, rows: Rows, longest: Sequence[int], settings: BeamSettings, **ids: int
    ) -> list[list[BeamHypothesis]]:
        """Translate sources together."""
        reader = OnnxReader(self._file, len(rows), self._read_source(*_padded(rows)))
        start = torch.full((len(rows), 1), ids.pop("start_id"))
        return search_rows(reader.last_logits, reader.take_rows, start, longest, settings, **ids)

    def _read_source(self, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Encode sources, and return the constant inputs of their decoder."""
        assert self._source is not None, "only an encoder-decoder translates"
        outputs = self._source.run({TOKENS: tokens, MASK: mask.long()})
        named = {name.replace(_PRESENT, _PAST): value for name, value in outputs.items()}
        return {SOURCE_MASK: mask.long(), **named}

    def states(self, rows: Rows, segments: Rows) -> Tensor:
        """Compute an encoder's states ``[N, T, D]`` of rows, padded to the longest."""
        (tokens, mask), (types, _) = _padded(rows), _padded(segments)
        return self._file.run({TOKENS: tokens, MASK: mask.long(), SEGMENTS: types})[STATES]

    def compare(
        self, text_model: TextModel, other: Transformer, batch: CertificateBatch
    ) -> Compared:
        """Return all outputs, of a file with a cache for tokens at once and in three parts."""
        model, tokens, mask = text_model.model, batch.tokens, batch.mask.clone()
        n, constant = tokens.shape[1], dict[str, Tensor]()
        if isinstance(model, EncoderDecoder):
            memory = model.encode(tokens, mask)
            constant = self._read_source(tokens, mask)
            tokens, mask = tokens.flip(1), torch.ones_like(mask)
            final = model.hidden(tokens, Layout.causal(tokens), memory=memory).final
            expected = _answers(model, final)
        else:
            if not isinstance(model, Encoder | Lstm):
                mask[1:, : n // 2] = False
            expected = _of_texts(model, tokens, mask, batch.segments)
        if any(name.startswith(_PAST) for name in self._file.shapes):
            computed = []
            for ends in ([0, n], [0, n // 2, n // 2 + 1, n]):
                reader = OnnxReader(self._file, len(tokens), constant)
                spans = [(start, end) for start, end in pairwise(ends) if start < end]
                parts = [reader.read(tokens[:, start:end], mask[:, :end]) for start, end in spans]
                names = (STATES, LOGITS)
                computed.append({x: torch.cat([part[x] for part in parts], 1) for x in names})
        else:
            feeds = {TOKENS: tokens, MASK: mask.long(), SEGMENTS: batch.segments}
            computed = [self._file.run(feeds)]
        pairs = []
        for name, value in expected.items():
            kept = mask if name in _OF_POSITIONS else slice(None)
            pairs += [(value[kept], outputs[name][kept]) for outputs in computed]
        return "outputs", pairs


def _padded(rows: Rows) -> tuple[Tensor, Tensor]:
    tokens = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


export_onnx = partial(export_engine, name=Onnx.name)
