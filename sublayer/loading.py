"""Load a trained model from a run, a checkpoint or a model folder."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.load import check_model_path, read_run_recipe
from sublayer.config.recipe import ResolvedModel
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import (
    MANIFEST,
    checkpoint_path,
    newest_checkpoint,
    read_state,
    saved_steps,
    verify_checkpoint,
)
from sublayer.files.parsing import check_typed, read_json_object
from sublayer.files.storage import describe_absence
from sublayer.model.model_folder import load_weights, read_config, spec_files
from sublayer.model.parameters import named_parameters
from sublayer.model.transformer import EncoderDecoder, Transformer, compose
from sublayer.numbers import count
from sublayer.system.machine import check_device
from sublayer.system.terminal import stage
from sublayer.tasks.registry import FILE_NAME, TaskSpec, read_spec
from sublayer.text_model import Generation, TextModel

RECIPE_NAME, MODEL_NAME, CHECKPOINTS_NAME, TOKENIZER_NAME, GENERATION_NAME = (
    "recipe.toml",
    "model",
    "checkpoints",
    "tokenizer.json",
    "generation.json",
)

_TRIED_TOKENS = 8
_log = logging.getLogger(__name__)


def load(
    path: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    *,
    average: int | None = None,
) -> TextModel:
    """Load a model in evaluation mode, with its tokenizer and its task.

    ``path`` is a run, a checkpoint, or a model folder (as training saves it and ``sublayer import``
    writes it). Of a run it is the final model, or, before there is one, the checkpoint of the best
    evaluation, or else the newest whole one. ``average`` gives the mean of a run's newest
    checkpoints, so many, instead (Vaswani et al. 2017, sec. 6.1). ``dtype`` converts the weights;
    None makes them float32, but where all were saved as float64.

    Raises CheckpointError where there is no such model, or it is damaged, of another format, or
    gives outputs that are not finite; ConfigError for a device that is not there, fewer checkpoints
    than are asked for, or a ``dtype`` or ``average`` of another type.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ConfigError(f"dtype = {dtype!r} is not a floating-point type: give torch.bfloat16")
    if not isinstance(average, int | None):
        raise ConfigError(f"average = {average!r} is not a whole number: give one, or None")
    with stage(f"loading {path}"):
        if average is None:
            folder = find_model(Path(path))
            model = load_untokenized(folder, device)
        else:
            folder, config, tensors = _averaged(Path(path), average, str(check_device(device)))
            model = with_weights(config, tensors)
        if dtype is not None:
            model = model.to(dtype)
        tokenizer, task = load_model_tokenizer(folder), load_task(folder)
        loaded = TextModel(model, tokenizer, task, generation=load_generation(folder))
        check_outputs(model, str(path))
    return loaded


def load_untokenized(folder: Path, device: str | torch.device = "cpu") -> Transformer:
    """Load the model of a folder as ``load`` does, without its tokenizer."""
    config, tensors = load_weights(folder, device=str(check_device(device)))
    return with_weights(config, tensors)


@torch.no_grad()
def check_outputs(model: Transformer, name: str) -> None:
    """Raise CheckpointError where a model's outputs are not finite, as of weights too large."""
    device = model.embedding.weight.device
    n_tokens = min(_TRIED_TOKENS, model.config.max_len or _TRIED_TOKENS)
    tokens = torch.arange(n_tokens, device=device)[None] % model.config.vocab_size
    target = {"target": tokens} if isinstance(model, EncoderDecoder) else {}
    if all(output.isfinite().all() for output in model(tokens, **target).values()):
        return
    largest = {key: float(value.abs().max()) for key, value in named_parameters(model)}
    key = max(largest, key=largest.__getitem__)
    raise CheckpointError(
        f"{name}: the model's outputs are not finite, with weights up to {largest[key]:.3g} in "
        f"{key}: its run failed, or the file is damaged; take another checkpoint"
    )


def load_model_tokenizer(folder: Path) -> Tokenizer | None:
    """Load a model folder's tokenizer, if any; raise CheckpointError where it does not fit."""
    config = read_config(folder)
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        return None
    tokenizer = load_tokenizer(path)
    # A model may have more than its tokenizer, as where a vocabulary is padded to a round number.
    if config.vocab_size is not None and tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size:,} ids, but the model's "
            f"vocab_size is {config.vocab_size:,}: they do not belong together"
        )
    return tokenizer


def load_task(folder: Path) -> TaskSpec | None:
    """Read the task that a folder's model answers, if any; raise CheckpointError for damage."""
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    return read_spec(read_json_object(path, CheckpointError), str(path))


def load_generation(folder: Path) -> Generation:
    """Read the settings of generation that an import kept; raise CheckpointError for damage."""
    path = folder / GENERATION_NAME
    if not path.is_file():
        return Generation()
    content = read_json_object(path, CheckpointError)
    return check_typed(content, Generation, str(path), CheckpointError, has_tuples=True)


def text_files(text_model: TextModel) -> dict[str, bytes]:
    """Return the files of a model folder besides its model: tokenizer, task, settings kept."""
    files = spec_files(text_model.task)
    if text_model.tokenizer is not None:
        files[TOKENIZER_NAME] = text_model.tokenizer.serialize()
    if text_model.generation != Generation():
        content = json.dumps(asdict(text_model.generation), indent=1, ensure_ascii=False)
        files[GENERATION_NAME] = content.encode() + b"\n"
    return files


def find_model(path: Path) -> Path:
    """Return the model folder of a path: itself, a run's final model, or one of its checkpoints.

    Of a run without a final model it is the checkpoint of the best evaluation, or else the newest
    whole one. Only checkpoints are verified; other folders are looked at when they are loaded.
    Raises CheckpointError where there is none, or it is a damaged checkpoint or of another format.
    """
    check_model_path(path)
    if (path / MANIFEST).is_file():
        verify_checkpoint(path)
        return path / MODEL_NAME
    if (path / RECIPE_NAME).is_file():
        if (path / MODEL_NAME).is_dir():
            return path / MODEL_NAME
        root = path / CHECKPOINTS_NAME
        newest = newest_checkpoint(root, _log.warning)
        if newest is None:
            raise CheckpointError(
                f"{path} has no model and no whole checkpoint: train it (with --resume) first"
            )
        best = read_state(newest).best
        return (newest if best is None else checkpoint_path(root, best.step)) / MODEL_NAME
    return path


def with_weights(config: ResolvedModel, tensors: Mapping[str, Tensor]) -> Transformer:
    """Build a model, in evaluation mode, of the tensors, which are not copied."""
    with torch.device("meta"):
        model = compose(config)
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _averaged(run: Path, n: int, device: str) -> tuple[Path, ResolvedModel, dict[str, Tensor]]:
    """Average a run's newest checkpoints in float64; return one's folder, its config, the mean."""
    root = run / CHECKPOINTS_NAME
    if not root.is_dir():
        fault = f"{run} has no checkpoints to average" if run.is_dir() else describe_absence(run)
        raise CheckpointError(f"{fault}: name a run")
    steps = saved_steps(root)
    if (run / RECIPE_NAME).is_file():  # without an older one that is kept as the best
        steps = steps[-read_run_recipe(run / RECIPE_NAME).train.keep_checkpoints :]
    if n < 1 or len(steps) < n:
        raise ConfigError(
            f"{run} has {count(len(steps), 'newest checkpoint')} and cannot average {n} of them: "
            "ask for fewer, or keep more in training (train.keep_checkpoints)"
        )
    sums: dict[str, Tensor] = {}
    for step in steps[-n:]:
        checkpoint = checkpoint_path(root, step)
        verify_checkpoint(checkpoint)
        folder = checkpoint / MODEL_NAME
        config, tensors = load_weights(folder, device=device)
        for name, value in tensors.items():
            sums[name] = sums[name] + value.double() if name in sums else value.double()
    # In the type that the checkpoints have.
    means = {name: (total / n).to(tensors[name].dtype) for name, total in sums.items()}
    return folder, config, means
