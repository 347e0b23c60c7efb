"""Certificates: agreement of a model's logits with another system's."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import asked_heads
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.data.tokenizers.settings import CONFIG_NAME, read_token_files
from sublayer.errors import CheckpointError, DataError
from sublayer.interop.exits import Exported, new_export
from sublayer.interop.family import Oracle
from sublayer.interop.folder import CONFIG, WEIGHTS, write_json
from sublayer.interop.tokenizers import describe_text
from sublayer.loading import text_files
from sublayer.model.blocks import Sublayer
from sublayer.model.context import Layout
from sublayer.model.model_folder import describe_model, save_model
from sublayer.model.parameters import parameter_roles
from sublayer.model.transformer import Body, Encoder, EncoderDecoder, Transformer
from sublayer.objective.supervised.heads import unscaled
from sublayer.system.machine import format_bytes, total_memory
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel

CERTIFICATE = "certificate.json"
LOGITS, HIDDEN_STATES = "logits", "hidden states"
_ROWS, _MAX_TOKENS, SEED = 2, 128, 0
_FLOAT64_PARAMETERS = 1_000_000_000
"""The most parameters a model may have to be compared in float64 too."""
_OF_POSITIONS = ("logits", "start_logits", "end_logits", "states")
_NAMES = {"pooler": "pooled", "vocabulary": "logits", "sentence": "sentence_logits"}
"""Heads whose outputs are compared without conversion."""
REFUSED_SHARE = 1e-3
"""Difference of outputs, as a share of the largest or of 1, that rounding cannot explain."""
TEXTS = (
    "The quick brown fox, jumps over 12 lazy dogs.",
    "Hello  World   three spaces",
    "  two before, two behind  ",
    "tab\there\nnew line\r\n\n and more\n",
    "CAPITALS and İstanbul, ΣΑΣ, Straße, ǅ",
    "naïve café Ünïcode Zwölf Boxkämpfer Việt",
    "e\u0301 a\u0308 combined, ﬁ ligature, ① Ａ wide ½",
    "日本語テスト 中文字符 한국어 文字。次",
    "русский текст, العربية, हिन्दी, ไทย",
    "emoji 🙂🙃 👩\u200d👩\u200d👧 🇩🇪 ok",
    "control \x01\x07\x1b\x7f and \x1c\x1d end",
    "no\u00a0break\u2003em\u200bzero\u3000wide\u2028line",
    "1 12 123 1234 12,345 3.14 7,0 1e-5 00",
    "don't I'll we've 'quoted' \"double\" (a) [b] {c} <d>",
    "a_b-c/d\\e@f#g$h%i^j&k*l+m=n~o|p`q",
    "https://example.org/a?b=c&d=e user@mail.org",
    "[CLS] a [SEP] b [MASK] [mask] [PAD] [UNK] [unused1]",
    "<s>a</s> <pad> <unk> <mask> <|endoftext|> <extra_id_0>",
    "▁a ▁▁b Ġc Ċd ##e f##",
    "\ufeffmark \ufffd replaced",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbb",
    " ",
    "",
)
_MOST_MARKS = 24
_SHOWN = 120


@dataclass(frozen=True)
class CertificateBatch:
    """Random tokens, mask and segments; a translator's target is its source reversed."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    """True at real tokens."""
    segments: Int[Tensor, "B T"]
    """0 in the first half of a row's real tokens, 1 in the second; only an encoder reads them."""
    kind: str
    """The model's kind. A decoder gets no mask; for others the second row is half as long."""

    @classmethod
    def draw(
        cls, config: ResolvedModel, pad_id: int | None = None, *, skips_padding: bool = False
    ) -> "CertificateBatch":
        """Draw a model's batch, a function of its sizes.

        With ``skips_padding``, and for a decoder with a label head, no token has the class's
        ``pad_id``; if such a decoder has none, the batch has one row, as the class requires.
        """
        kind = "decoder" if config.kind == "lstm" else config.kind
        is_of_texts = config.kind == "decoder" and config.label_outputs > 0
        n_rows = 1 if is_of_texts and pad_id is None else _ROWS
        shape = (n_rows, min(config.max_len or _MAX_TOKENS, _MAX_TOKENS))
        generator = torch.Generator().manual_seed(SEED)
        tokens = torch.randint(config.vocab_size, shape, generator=generator)
        if config.kind == "encoder-decoder":
            # M2M100 ignores padding ids anywhere.
            pad_id = config.first_position - 1
        elif not (is_of_texts or skips_padding):
            pad_id = None
        if pad_id is not None:
            tokens = torch.where(tokens == pad_id, (pad_id + 1) % config.vocab_size, tokens)
        n_tokens = shape[1]
        n_of_second = n_tokens if kind == "decoder" else (n_tokens + 1) // 2
        lengths = torch.tensor([n_tokens, n_of_second])[:n_rows, None]
        positions = torch.arange(n_tokens)
        mask = positions < lengths
        segments = ((positions >= lengths // 2) & mask).long()
        return cls(tokens, mask, segments, kind)

    def ours(self, model: Transformer, task: Task | None = None) -> dict[str, Tensor]:
        """Return a model's outputs by the names of the comparison, numbers on the task's scale."""
        if isinstance(model, EncoderDecoder):
            output = model(self.tokens, self.mask, target=self.tokens.flip(1))
        else:
            more = () if self.kind == "decoder" else (self.mask, self.segments)
            output = model(self.tokens, *more)
        outputs = {}
        if isinstance(model, Encoder) and model.head is None:
            layout = Layout.bidirectional(self.tokens, self.mask)
            outputs["states"] = model.hidden(self.tokens, layout, segments=self.segments).final
        outputs |= {name: output[head] for head, name in _NAMES.items() if head in output}
        if "logits" in outputs:
            # No class of transformers has logits for positions.
            outputs["logits"] = outputs["logits"][..., : model.config.vocab_size]
        if "span" in output:
            outputs["start_logits"], outputs["end_logits"] = output["span"].unbind(-1)
        if "label" in output:
            labels = output["label"]
            outputs["choice_logits"] = labels.T
            if task is not None and task.kind == "number":
                labels = unscaled(task, labels)
            elif task is not None and labels.shape[1] < len(task.labels):
                # A single output for two labels is the second's logit; the first's is 0.
                labels = torch.cat([torch.zeros_like(labels), labels], 1)
            outputs["label_logits"] = labels
        return outputs

    def theirs(self, model: Any, oracle: Oracle) -> dict[str, Tensor]:
        """Return the outputs of a transformers model, by our names."""
        inputs: dict[str, Any] = {"input_ids": self.tokens}
        if self.kind != "decoder":
            inputs["attention_mask"] = self.mask.long()
        if self.kind == "encoder-decoder":
            inputs |= {"decoder_input_ids": self.tokens.flip(1), "use_cache": False}
        elif self.kind == "encoder" and getattr(model.config, "type_vocab_size", 1) > 1:
            inputs["token_type_ids"] = self.segments
        if oracle.has_choices:
            inputs = {name: tensor[None] for name, tensor in inputs.items()}
        output = model(**inputs)
        outputs = {ours: getattr(output, name) for name, ours in oracle.outputs.items()}
        if oracle.has_choices and "logits" in outputs:
            outputs["logits"] = outputs["logits"][0]
        return outputs

    def kept(self, name: str, logits: Tensor) -> Tensor:
        """Drop the meaningless logits of padded positions."""
        # Whole texts and a translator's target have none.
        is_padded = name in _OF_POSITIONS and self.kind != "encoder-decoder"
        return logits[self.mask] if is_padded else logits

    def certificate(
        self, compared: str, against: str, differences: Mapping[str, float], largest: float
    ) -> dict[str, Any]:
        """Return the certificate of a comparison of this batch's outputs, differences by dtype."""
        n_rows, length = self.tokens.shape
        return {
            "checked": True,
            **({} if compared == LOGITS else {"compared": compared}),
            "against": against,
            "tokens": {"rows": n_rows, "length": length, "seed": SEED},
            "largest_difference": differences,
            "largest_logit": largest,
        }


@torch.no_grad()
def certify(
    model: Transformer,
    fields: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    oracle: Oracle,
    task: Task | None = None,
    load: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Compare a model's outputs with those of a transformers class built from fields and tensors.

    Tokens are random. transformers reads no file: nothing else in a folder can affect it. ``load``
    loads the model in place of fields and tensors. For a class without a head, hidden states and
    the pooler's output are compared.

    The certificate has the largest absolute difference in float64 and float32, and the largest
    logit; without transformers, or memory for both models and the tensors, it reports that nothing
    was compared. Models of more than a billion parameters are not compared in float64.

    Raises CheckpointError where a head's logits differ by more than a thousandth of its largest
    logit (or of 1) in the widest dtype compared, or are not finite in the other.
    """
    if find_spec("transformers") is None:
        return {"checked": False, "reason": "transformers is not installed"}
    transformers: Any = import_module("transformers")
    dtypes = [torch.float64, torch.float32][_n_parameters(model) > _FLOAT64_PARAMETERS :]
    widest = dtypes[0]
    here, needed = total_memory(), _needed_bytes(model, tensors, widest)
    if here is not None and needed > here:
        sizes = f"{format_bytes(needed)}, {format_bytes(here)} here"
        return {"checked": False, "reason": f"the comparison needs {sizes}"}
    theirs = load() if load else _build(getattr(transformers, oracle.name), fields, tensors)
    pad_id = getattr(theirs.config, "pad_token_id", None)
    batch = CertificateBatch.draw(model.config, pad_id, skips_padding=oracle.skips_padding)
    compared = HIDDEN_STATES if "states" in oracle.outputs.values() else LOGITS
    differences: dict[str, float] = {}
    for dtype in dtypes:
        with computing_in(model, dtype):
            computed = batch.ours(model, task)
        with computing_in(theirs, dtype):
            expected = batch.theirs(theirs, oracle)
        pairs = [
            (batch.kept(name, computed[name]), batch.kept(name, outputs))
            for name, outputs in expected.items()
        ]
        differences[_name(dtype)] = max(_compare(*pair, dtype, widest, compared) for pair in pairs)
        largest = max(float(logits.abs().max()) for _, logits in pairs)
    against = f"transformers {transformers.__version__}"
    return batch.certificate(compared, against, differences, largest)


def _n_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _needed_bytes(model: Transformer, tensors: Mapping[str, Tensor], widest: torch.dtype) -> int:
    """Return the bytes of both models and the tensors, and of the widened part of one model."""
    # One layer is widened at a time, of up to three sub-layers here.
    in_layers = sorted(_n_parameters(x) for x in model.modules() if isinstance(x, Sublayer))
    n_widened = _n_parameters(model) - sum(in_layers[:-3])
    given = sum(tensor.nbytes for tensor in tensors.values())
    both = 2 * _n_parameters(model) * model.embedding.weight.itemsize
    return both + given + n_widened * widest.itemsize


@contextmanager
def computing_in(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Have a model compute in another dtype, in evaluation mode on the CPU; then it is as before.

    A layer is converted only while it runs, so that no model is in memory twice.
    """
    kinds = Sublayer, import_module("transformers.modeling_layers").GradientCheckpointingLayer
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    tensors = {part: [*part.parameters(), *part.buffers()] for part in (*layers, model)}
    inside = {tensor for layer in layers for tensor in tensors[layer]}
    tensors[model] = [tensor for tensor in tensors[model] if tensor not in inside]
    kept: dict[nn.Module, list[Tensor]] = {}

    def convert(module: nn.Module, *_: Any) -> None:
        kept[module] = [tensor.data for tensor in tensors[module]]
        for tensor in tensors[module]:
            tensor.data = tensor.data.to("cpu", dtype if tensor.is_floating_point() else None)

    def restore(module: nn.Module, *_: Any) -> None:
        for tensor, data in zip(tensors[module], kept.pop(module), strict=True):
            tensor.data = data

    hooks = [layer.register_forward_pre_hook(convert) for layer in layers]
    hooks += [layer.register_forward_hook(restore) for layer in layers]
    was_training = model.training
    model.eval()
    try:
        convert(model)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in reversed([*kept]):
            restore(module)
        model.train(was_training)


def certify_tokenizer(tokenizer: Tokenizer | None, folder: Path) -> dict[str, Any]:
    """Compare a tokenizer's ids of hard texts with those of transformers' class for a folder.

    Empty without a tokenizer or transformers, and for words by Moses' rules; not checked, with the
    reason, where either tokenizer fails.
    """
    if tokenizer is None or find_spec("transformers") is None:
        return {}
    if isinstance(tokenizer, BilingualTokenizer) and tokenizer.source.moses != "none":
        return {}  # transformers reads what Moses' rules make of a text
    transformers: Any = import_module("transformers")
    texts = list(TEXTS)
    if tokenizer.reads_marks is None:
        # Names that a vocabulary trained here reads as text are special tokens to an encoder's
        # class.
        texts = [text for text in texts if not any(name in text for name in tokenizer.marks)]
    else:
        for name in list(tokenizer.marks)[:_MOST_MARKS]:
            texts += [f"a{name}b", f"the {name} end", f"{name.upper()} {name}"]
    with quiet():
        try:
            name = read_token_files(folder).class_name
            fast = transformers.PreTrainedTokenizerFast
            of_none = name in ("", "PreTrainedTokenizer")
            kind = fast if of_none else getattr(transformers, name, fast)
            # A folder may name a class that would ask whether to run the folder's code.
            safely = {"local_files_only": True, "trust_remote_code": False}
            theirs = kind.from_pretrained(str(folder), **safely)
            expected = [theirs(text, add_special_tokens=False).input_ids for text in texts]
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # a panic of the tokenizers library is no Exception
            reason = " ".join(str(problem).split())[:_SHOWN] or type(problem).__name__
            return {"tokenizer_ids": {"checked": False, "reason": reason}}
    try:
        if isinstance(tokenizer, BilingualTokenizer):
            encoded = tokenizer.encode_source(texts)
        else:
            encoded = tokenizer.encode_many([text.encode() for text in texts])
        ours = [ids.tolist() for ids in encoded]
    except DataError as problem:
        return {"tokenizer_ids": {"checked": False, "reason": str(problem)}}
    differing = [
        {"text": text, "ids": ids[:_SHOWN], "theirs": other[:_SHOWN]}
        for text, ids, other in zip(texts, ours, expected, strict=True)
        if ids != other
    ]
    compared = {
        "checked": True,
        "against": f"transformers' {type(theirs).__name__}",
        "texts": len(texts),
        "equal": len(texts) - len(differing),
    }
    return {"tokenizer_ids": compared | ({"first": differing[0]} if differing else {})}


def save_imported(text_model: TextModel, out: Path, certificate: dict[str, Any]) -> None:
    """Write a model folder and its certificate; raise CheckpointError where ``out`` exists."""
    files = text_files(text_model)
    files[CERTIFICATE] = json.dumps(certificate, indent=2).encode() + b"\n"
    save_model(out, text_model.model, files)


def save_exported(
    text_model: TextModel,
    full: ResolvedModel,
    out: Path,
    described: Mapping[str, Any],
    tensors: dict[str, Tensor],
    files: Mapping[str, bytes],
    certify_folder: Callable[[Path], dict[str, Any]],
    **notes: str,
) -> dict[str, Any]:
    """Write a folder that transformers loads, and return its certificate with the ``notes``.

    ``full`` is the expanded config, ``described`` the ``config.json``. ``tensors`` are dropped
    before the comparison reads their file. Raises ConfigError where ``out`` exists.
    """
    config, heads = text_model.model.config, asked_heads(full)
    left_out = [row.title for name, row in asked_heads(config).items() if name not in heads]
    if "vocabulary" in heads and config.softmax == "all":
        left_out.append("positions as output classes: probabilities are over tokens alone")
    with new_export(out) as partial:
        write_json(partial / CONFIG, described)
        save_file(tensors, partial / WEIGHTS, metadata={"format": "pt"})
        tensors.clear()
        for name, content in files.items():
            (partial / name).write_bytes(content)
        certificate = certify_folder(partial)
        text = {"tokenizer": describe_text(text_model.tokenizer), "left_out": ", ".join(left_out)}
        certificate |= {name: note for name, note in (text | notes).items() if note}
        if CONFIG_NAME in files:
            certificate |= certify_tokenizer(text_model.tokenizer, partial)
        write_json(partial / CERTIFICATE, certificate)
    return certificate


def export_safetensors(text_model: TextModel, out: Path) -> Exported:
    """Write a model's weights by our names, its settings, its tokenizer and its task.

    ``weights.json`` has the shape and the role of every tensor, and the prefixes of the sub-layers
    of each block in the order of execution. Raises CheckpointError where the file has other
    numbers.
    """
    model = text_model.model
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    roles = parameter_roles(model)
    tensors = {name: {"shape": [*x.shape], "role": roles[name]} for name, x in weights.items()}
    order = {}
    for name, body in model.named_modules():
        if isinstance(body, Body):
            stack = f"{name}.{body.shape.name}".lstrip(".")
            order[stack] = [
                [f"{stack}.sublayers.{index}.{slot}" for index, slot in enumerate(slots)]
                for slots in body.stack.slots
            ]
    with new_export(out) as partial:
        save_file(weights, partial / WEIGHTS)
        write_json(partial / "weights.json", {"tensors": tensors, "order": order})
        describe_model(partial, model.config, text_files(text_model))
        stored = load_file(partial / WEIGHTS)
        if not all(torch.equal(stored[name], value) for name, value in weights.items()):
            raise CheckpointError(f"{out} has other numbers than the model: it was not written")
        certificate = {
            "checked": True,
            "compared": "weights",
            "against": "the file",
            "largest_difference": {_name(model.embedding.weight.dtype): 0.0},
            "largest_logit": max(float(value.abs().max()) for value in weights.values()),
        }
        write_json(partial / CERTIFICATE, certificate)
    following = f"safetensors.torch.load_file({str(out / WEIGHTS)!r})"
    return Exported("safetensors", certificate, text_model.tokenizer is not None, following)


def describe_ids(certificate: Mapping[str, Any]) -> str | None:
    """Format a certificate's line on a tokenizer's ids; None where it has none."""
    compared = certificate.get("tokenizer_ids")
    if compared is None:
        return None
    if not compared["checked"]:
        return f"ids of texts not checked against transformers: {compared['reason']}"
    line = (
        f"ids of {compared['equal']} of {compared['texts']} hard texts as by {compared['against']}"
    )
    if "first" not in compared:
        return line
    first = compared["first"]
    return f"{line}; of {first['text']!r} they are {first['ids']}, there {first['theirs']}"


def describe(certificate: Mapping[str, Any]) -> str:
    """Format a certificate as one line: the agreement, or the reason why it certifies nothing."""
    if not certificate["checked"]:
        against = certificate.get("against", "transformers")
        return f"not checked against {against}: {certificate['reason']}"
    largest = certificate["largest_difference"].items()
    differences = [f"{value:.1e} in {name}" for name, value in largest]
    compared = certificate.get("compared", LOGITS)
    return (
        f"largest difference of {compared} from {certificate['against']}: {', '.join(differences)} "
        f"(largest {_single(compared)} {certificate['largest_logit']:.3g})"
    )


def _build(kind: Any, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    settings = dict(fields)
    has_table = any("embed_positions" in name for name in tensors)
    if kind.config_class.is_encoder_decoder and not has_table:
        # The table of sinusoids need not be longer than the positions that are read.
        n_positions = settings.get("max_position_embeddings", _MAX_TOKENS)
        settings["max_position_embeddings"] = min(_MAX_TOKENS, n_positions)
    has_float64 = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    dtype = torch.float64 if has_float64 else torch.float32
    with quiet():
        config = kind.config_class(**settings)
        reading = {"state_dict": dict(tensors), "dtype": dtype, "local_files_only": True}
        return kind.from_pretrained(None, config=config, **reading).eval()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _single(compared: str) -> str:
    return "logit" if compared == LOGITS else "value"


def _compare(
    computed: Tensor, expected: Tensor, dtype: torch.dtype, judged: torch.dtype, compared: str
) -> float:
    name = _name(dtype)
    if not expected.isfinite().all():
        raise CheckpointError(
            f"the {compared} of these weights are not finite in {name}: they are damaged or too "
            "large, and nothing was written"
        )
    difference = float((computed - expected).abs().max())
    largest = max(1.0, float(expected.abs().max()))
    # In a narrower dtype than the widest compared, rounding may differ by any finite amount. The
    # comparison is negated so that NaN is refused too.
    allowed = REFUSED_SHARE * largest if dtype == judged else torch.finfo(dtype).max
    if not difference <= allowed:
        raise CheckpointError(
            f"the model's {compared} differ from transformers' by {difference:.3g} in {name} "
            f"(largest {_single(compared)} {largest:.3g}): it was not written"
        )
    return difference


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers: its notes, its bars and its warnings."""
    logging: Any = import_module("transformers.utils.logging")
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
