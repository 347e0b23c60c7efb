"""Engines: programs that compute the outputs of exported models in place of PyTorch.

An engine is a class with a ``name``, a static ``write(text_model, folder)``, and objects of a
``(folder, config, dtype, device)``, which have, by the kind of model, ``generate(prompt, n_tokens,
sampling, seed, until)`` as in ``decode.sample`` within the context, ``search(sources, settings,
end_id=, pad_id=, sentences=)`` as in ``decode.beam``, or ``states(rows, segments)`` of an encoder,
``[N, T, D]``. Beside its own files a folder has our config, the tokenizer, the task, and an
encoder's heads.
"""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sublayer.config.load import MODEL_FORMAT
from sublayer.config.stacks import asked_heads
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.interop.exits import EXITS
from sublayer.interop.tokenizers import FILE as TOKENIZER
from sublayer.loading import load, load_task
from sublayer.model.context import Layout, Queries
from sublayer.model.layers import load_class
from sublayer.model.model_folder import VERSION, parse_config, spec_files
from sublayer.model.transformer import Encoder, Hidden, compose
from sublayer.numbers import with_article
from sublayer.system.terminal import note, stage
from sublayer.text_model import TextModel

FILE = "sublayer.json"
_HEADS = "heads.safetensors"


class EngineEncoder(Encoder):
    """Encoder with the states of an engine and heads of its own."""

    def hidden(
        self, tokens: Tensor, layout: Layout, *, queries: Queries | None = None, **others: Any
    ) -> Hidden:
        """Compute hidden states, each document of the layout as a row of the engine."""
        segments = others.get("segments")
        segments = torch.zeros_like(tokens) if segments is None else segments
        is_real = torch.ones_like(tokens, dtype=torch.bool)
        starts = torch.zeros_like(is_real)
        if layout.runs is not None:
            is_real, starts = layout.runs.is_real, layout.runs.starts.clone()
        starts[:, 0] = True
        numbers = starts.flatten().cumsum(0)[is_real.flatten()]
        lengths = torch.unique_consecutive(numbers, return_counts=True)[1].tolist()
        rows, types = (
            [part.tolist() for part in each[is_real].split(lengths)] for each in (tokens, segments)
        )
        states = self.engine.states(rows, types)
        every = states.new_zeros(*tokens.shape, states.shape[-1])
        every[is_real] = torch.cat([row[:n] for row, n in zip(states, lengths, strict=True)])
        return Hidden(every if queries is None else queries.pick(every), {})


def describe_folder(text_model: TextModel, folder: Path, engine: str, dtype: str) -> None:
    """Write the files of an engine's folder that are ours."""
    model, tokenizer = text_model.model, text_model.tokenizer
    described = {"format": MODEL_FORMAT, "version": VERSION, "engine": engine, "dtype": dtype}
    described["model"] = model.config.model_dump(mode="json")
    files = spec_files(text_model.task) | {FILE: json.dumps(described, indent=2).encode() + b"\n"}
    if tokenizer is not None:
        files[TOKENIZER] = tokenizer.serialize()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    own = {row.attribute for name, row in asked_heads(model.config).items() if name != "vocabulary"}
    if isinstance(model, Encoder) and own:
        state = model.state_dict()
        heads = {name: state[name].float() for name in state if name.partition(".")[0] in own}
        save_file(heads, folder / _HEADS)


def open_engine(folder: Path, name: str, device: str | None = None) -> TextModel:
    """Open an exported folder; raise CheckpointError for one of another engine, or a damaged one.

    The model has no weights but heads; functions of decoding ask its engine.
    """
    path = folder / FILE
    described = read_json_object(path, CheckpointError)
    if (other := described.get("engine")) != name:
        raise CheckpointError(
            f"{folder} is exported for {other!s:.40}: give --engine {other!s:.40}"
        )
    config = parse_config(described, path)
    file = folder / TOKENIZER
    tokenizer = load_tokenizer(file) if file.is_file() else None
    with torch.device("meta"):
        model = EngineEncoder(config) if config.kind == "encoder" else compose(config)
    if (folder / _HEADS).is_file():
        model.load_state_dict(load_file(folder / _HEADS), strict=False, assign=True)
    # Inputs are made on the device of the table.
    model.embedding.weight = nn.Parameter(torch.empty(0, config.d_embed))
    model.engine = load_class(EXITS[name].engine)(folder, config, str(described["dtype"]), device)
    return TextModel(model.eval(), tokenizer, load_task(folder))


def load_engine(
    run: Path | TextModel, name: str, device: str | None = None, average: int | None = None
) -> TextModel:
    """Open a folder that is exported for an engine, or convert another model into a temporary one.

    Raises ConfigError for a model that the engine cannot compute, and for an ``average`` of an
    exported one.
    """
    if not isinstance(run, TextModel) and (run / FILE).is_file():
        if average is not None:
            raise ConfigError(
                f"--average {average} has no effect on {run}, which is exported: leave it out"
            )
        return open_engine(run, name, device)
    text_model = run if isinstance(run, TextModel) else load(run, average=average)
    with tempfile.TemporaryDirectory() as folder, stage(f"converting the model for {name}"):
        load_class(EXITS[name].engine).write(text_model, Path(folder))
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
