"""Engines: programs that compute the outputs of exported models in place of PyTorch.

An engine is a class with a ``name``, its ``library``, a ``table`` of the models that it represents,
and static functions: ``write(text_model, folder, dtype)``, and ``describe(config, folder)``, which
returns the class that loads a folder and a line that uses it. Objects, of a ``(folder, config,
dtype, device)``, have, by the kind of model, ``generate(prompt, n_tokens, sampling, seed, until)``
as in ``decode.sample`` within the context; ``search(rows, longest, settings, end_id=, pad_id=,
start_id=)``, which yields the hypotheses of each source, a row with its end; or ``states(rows,
segments)`` of an encoder, ``[N, T, D]``; and ``compare(text_model, other, batch)``, which computes
outputs of a batch for the certificate, also by the engine's model ``other``.
"""

import math
import tempfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sublayer.config.load import ENGINE_FILE, MODEL_FORMAT
from sublayer.config.plugins import used_plugins
from sublayer.config.stacks import asked_heads
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.decode.beam import BeamSettings, search
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.interop.certificate import CERTIFICATE, REFUSED_SHARE, SEED, CertificateBatch
from sublayer.interop.exits import EXITS, Exported, new_export
from sublayer.interop.folder import write_json
from sublayer.interop.foreign_config import refused_fields
from sublayer.loading import TOKENIZER_NAME, load, load_generation, load_task, text_files
from sublayer.model.context import Layout, Queries
from sublayer.model.layers import load_class
from sublayer.model.model_folder import VERSION, parse_config
from sublayer.model.transformer import (
    Decoder,
    Encoder,
    EncoderDecoder,
    Hidden,
    Transformer,
    compose,
)
from sublayer.numbers import with_article
from sublayer.system.terminal import note, stage
from sublayer.text_model import TextModel

_HEADS = "heads.safetensors"
_PROMPTS, _PROMPT_TOKENS, _NEW_TOKENS, _DRIFT_TOKENS = 8, 4, 32, 128
Rows = Sequence[list[int]]
Ends = Sequence[int] | None
"""Ids that end a text; None for a text that is read before its end."""
Compared = tuple[str, list[tuple[Tensor, Tensor]]]
"""The name of outputs, and pairs of ours and an engine's."""


class EngineEncoder(Encoder):
    """Encoder with the states of an engine and heads of its own."""

    def hidden(
        self, tokens: Tensor, layout: Layout, *, queries: Queries | None = None, **others: Any
    ) -> Hidden:
        """Compute hidden states, each document of the layout as a row of the engine."""
        segments = others.get("segments")
        segments = torch.zeros_like(tokens) if segments is None else segments
        is_real = torch.ones_like(tokens, dtype=torch.bool)
        numbers = torch.arange(len(tokens)).repeat_interleave(tokens.shape[1])
        if layout.runs is not None:
            is_real, numbers = layout.runs.is_real, layout.runs.sequences
        numbers = numbers[is_real.flatten()]
        lengths = torch.unique_consecutive(numbers, return_counts=True)[1].tolist()
        rows, types = (
            [part.tolist() for part in each[is_real].split(lengths)] for each in (tokens, segments)
        )
        states = self.engine.states(rows, types)
        every = states.new_zeros(*tokens.shape, states.shape[-1])
        every[is_real] = torch.cat([row[:n] for row, n in zip(states, lengths, strict=True)])
        return Hidden(every if queries is None else queries.pick(every), {})


def write_folder(text_model: TextModel, folder: Path, name: str, dtype: str = "float32") -> None:
    """Write a folder of the engine ``name``, and beside it an encoder's heads; no certificate.

    Raises ConfigError, naming every field that the engine cannot represent, and for a dtype that
    the machine cannot compute; DataError without the engine's library.
    """
    model, engine = text_model.model, load_class(EXITS[name].engine)
    plugins = [f"the plugin {plugin.name}" for plugin in used_plugins(model.config)]
    if refused := plugins or refused_fields(model.config, engine.table):
        raise ConfigError(
            f"{name} cannot represent {', '.join(refused)}: the model cannot be exported"
        )
    engine.write(text_model, folder, dtype)
    described = {"format": MODEL_FORMAT, "version": VERSION, "engine": name, "dtype": dtype}
    described["model"] = model.config.model_dump(mode="json")
    write_json(folder / ENGINE_FILE, described)
    for file, content in text_files(text_model).items():
        (folder / file).write_bytes(content)
    own = {row.attribute for head, row in asked_heads(model.config).items() if head != "vocabulary"}
    if isinstance(model, Encoder) and own:
        state = model.state_dict()
        heads = {key: state[key].float() for key in state if key.partition(".")[0] in own}
        save_file(heads, folder / _HEADS)


def export_engine(
    text_model: TextModel, out: Path, *, name: str, dtype: str = "float32"
) -> Exported:
    """Write a model as a new folder that the engine ``name``, and ``--engine``, load.

    Raises as ``write_folder`` does, and CheckpointError where the engine computes other outputs in
    float32. Nothing is written then.
    """
    with new_export(out) as partial:
        write_folder(text_model, partial, name, dtype)
        certificate = certify(text_model, partial, name, dtype)
        write_json(partial / CERTIFICATE, certificate)
    title, following = load_class(EXITS[name].engine).describe(text_model.model.config, out)
    lines = []
    if (greedy := certificate.get("greedy")) is not None:
        lines.append(f"greedy tokens of {greedy['equal']} of {greedy['prompts']} prompts are equal")
    if (drift := certificate.get("drift")) is not None:
        lines.append(f"drift: {drift['bits']:+.4f} bits per {drift['per']} of {drift['text']}")
    return Exported(title, certificate, text_model.tokenizer is not None, following, lines)


def open_engine(folder: Path, name: str, device: str | None = None) -> TextModel:
    """Open a folder of an engine: a model whose only weights are heads, and which asks the engine.

    Raises CheckpointError for a folder of another engine, or a damaged one.
    """
    path = folder / ENGINE_FILE
    described = read_json_object(path, CheckpointError)
    if (other := described.get("engine")) != name:
        raise CheckpointError(
            f"{folder} is exported for {other!s:.40}: give --engine {other!s:.40}"
        )
    config = parse_config(described, path)
    file = folder / TOKENIZER_NAME
    tokenizer = load_tokenizer(file) if file.is_file() else None
    with torch.device("meta"):
        model = EngineEncoder(config) if config.kind == "encoder" else compose(config)
    if (folder / _HEADS).is_file():
        model.load_state_dict(load_file(folder / _HEADS), strict=False, assign=True)
    # Inputs are made on the device of the table.
    model.embedding.weight = nn.Parameter(torch.empty(0, config.d_embed))
    model.engine = load_class(EXITS[name].engine)(
        folder, config, str(described.get("dtype")), device
    )
    task, generation = load_task(folder), load_generation(folder)
    return TextModel(model.eval(), tokenizer, task, generation=generation)


def load_engine(
    run: Path | TextModel, name: str, device: str | None = None, average: int | None = None
) -> TextModel:
    """Open a folder that is exported for an engine, or convert another model for it."""
    if not isinstance(run, TextModel) and (run / ENGINE_FILE).is_file():
        if average is not None:
            raise ConfigError(
                f"--average {average} has no effect on {run}, which is exported: leave it out"
            )
        return open_engine(run, name, device)
    text_model = run if isinstance(run, TextModel) else load(run, average=average)
    with tempfile.TemporaryDirectory() as folder, stage(f"converting the model for {name}"):
        write_folder(text_model, Path(folder), name)
        opened = open_engine(Path(folder), name, device)
    note(f"converted for {name} in a temporary folder: `sublayer export --to {name}` keeps one")
    return opened


def check_states(models: Iterable[TextModel]) -> None:
    """Raise ConfigError for a model whose states its engine does not give."""
    for model in (text_model.model for text_model in models):
        if not isinstance(model, Encoder):
            raise ConfigError(
                f"--engine {model.engine.name} gives the states of an encoder, not of "
                f"{with_article(model.config.kind)}: leave it out"
            )


@torch.inference_mode()
def certify(text_model: TextModel, folder: Path, name: str, dtype: str) -> dict[str, Any]:
    """Compare a written folder with its model: outputs, greedy tokens, a quantised decoder's drift.

    Raises CheckpointError where outputs differ in float32 by more than rounding.
    """
    # The processor may lack a type that a GPU has.
    device = "cpu" if dtype == "float32" else None
    model, other = text_model.model, open_engine(folder, name, device)
    engine, batch = other.model.engine, CertificateBatch.draw(model.config)
    compared, pairs = engine.compare(text_model, other.model, batch)
    difference = float(torch.stack([(ours - theirs).abs().max() for ours, theirs in pairs]).max())
    largest = float(torch.stack([ours.abs().max() for ours, _ in pairs]).max())
    if dtype == "float32" and not difference <= REFUSED_SHARE * max(1.0, largest):
        raise CheckpointError(
            f"the model's {compared} differ from {name}'s by {difference:.3g} (largest "
            f"{largest:.3g}): it was not written"
        )
    against = f"{engine.library} {import_module(engine.library).__version__}"
    certificate = batch.certificate(compared, against, {dtype: difference}, largest)
    if not isinstance(model, Encoder) and [*model.heads] == ["vocabulary"]:
        # Random prompts, of which those are counted that both models continue alike.
        config, generator = model.config, torch.Generator().manual_seed(SEED)
        length = min(_PROMPT_TOKENS, config.max_len - 1)
        n_tokens = min(_NEW_TOKENS, config.max_len - length)
        prompts = torch.randint(config.vocab_size, (_PROMPTS, length), generator=generator)
        texts = (continue_greedily(each, prompts, n_tokens) for each in (text_model, other))
        equal = sum(one == two for one, two in zip(*texts, strict=True))
        certificate["greedy"] = {"prompts": _PROMPTS, "tokens": n_tokens, "equal": equal}
    if isinstance(model, Decoder) and dtype != "float32":
        certificate["drift"] = _drift(text_model, other.model)
    return certificate


def continue_greedily(
    text_model: TextModel, prompts: Int[Tensor, "N P"], n_tokens: int
) -> list[list[int]]:
    """Return the likeliest tokens after prompts, or those of an encoder-decoder for sources."""
    model = text_model.model
    if isinstance(model, EncoderDecoder):
        settings = BeamSettings(1, max_length_offset=n_tokens)
        sources = [row.numpy() for row in prompts]
        found = search(model, sources, settings, **special_ids(text_model))
        return [best.ids.tolist() for _, [best] in sorted(found, key=itemgetter(0))]
    assert isinstance(model, Decoder), "an encoder continues nothing"
    return list(torch.stack([*generate(model, prompts, n_tokens, GREEDY)], 1).tolist())


def _drift(text_model: TextModel, other: Transformer) -> dict[str, Any]:
    """Compute how many more bits the other model needs for a text sampled from ours."""
    model, tokenizer = text_model.model, text_model.tokenizer
    assert isinstance(model, Decoder), "only a decoder samples"
    text = torch.zeros(2, 1, dtype=torch.long)
    n_tokens = min(_DRIFT_TOKENS, model.config.max_len) - 1
    drawn = generate(model, text, n_tokens, Sampling(), seed=SEED)
    text = torch.cat([text, torch.stack([*drawn], 1)], 1)
    targets, unit, size = text[:, 1:].flatten(), "token", 2 * n_tokens
    nats = [
        float(F.cross_entropy(logits[:, :-1].flatten(0, 1).double(), targets, reduction="sum"))
        for logits in (token_logits(model, text), other.engine.logits(text))
    ]
    if tokenizer is not None and int(targets.max()) < tokenizer.vocab_size:
        unit, size = "byte", int(tokenizer.token_bytes[targets.numpy()].sum())
    bits = (nats[1] - nats[0]) / math.log(2) / size
    return {"text": f"{2 * n_tokens} tokens that the model samples", "per": unit, "bits": bits}


def token_logits(model: Transformer, tokens: Int[Tensor, "N T"]) -> Float[Tensor, "N T V"]:
    """Compute a decoder's logits of tokens, without those of positions."""
    return model.logits(model.hidden(tokens, Layout.causal(tokens)).final)


def special_ids(text_model: TextModel) -> dict[str, Any]:
    """Return the ids that ``search`` takes: end, padding and a decoder's start; 0 without one."""
    tokenizer, config = text_model.tokenizer, text_model.model.config
    roles = ("end_id", "sep_id") if config.kind == "decoder" else ("sep_id", "end_id")
    ends = [getattr(tokenizer, role, None) for role in roles]
    end = next((id_ for id_ in ends if id_ is not None), 0)
    pad = getattr(tokenizer, "pad_id", None) or 0
    start = pad if config.decoder_start == "pad" else end
    return {"end_id": end, "pad_id": pad, "start_id": start}
