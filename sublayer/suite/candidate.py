"""A model that is scored: where it lies, what it is, and what it is called."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.files.paths import resolved
from sublayer.loading import (
    CHECKPOINTS_NAME,
    MODEL_NAME,
    find_model,
    find_recipe,
    load,
    load_model_tokenizer,
    load_task,
)
from sublayer.model.build import compose
from sublayer.model.model_folder import read_config
from sublayer.model.transformer import Transformer
from sublayer.objective.evaluation import context_of
from sublayer.tasks.spec import TaskSpec

_ARTICLES = {"encoder": "an encoder", "decoder": "a decoder", "lstm": "an LSTM"}


@dataclass(frozen=True)
class Candidate:
    """A model among those that are scored."""

    name: str
    """Unique among them."""
    path: Path
    """Of the run, the checkpoint or the model folder."""
    shell: Transformer
    """The model without its weights, but with its tokenizer and what it answers."""
    recipe: Recipe | None
    """That of its run; None outside one."""

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.shell.config.kind

    @property
    def described(self) -> str:
        """The kind in words."""
        return _ARTICLES.get(self.kind, f"an {self.kind}")

    @property
    def spec(self) -> TaskSpec | None:
        """What it answers; None where it was not fine-tuned."""
        spec: TaskSpec | None = self.shell.task
        return spec

    @property
    def context(self) -> int:
        """Tokens that it reads at a time."""
        return context_of(self.shell, self.recipe)

    @property
    def n_parameters(self) -> int:
        """Numbers that were trained, those that are shared counted once."""
        return sum(parameter.numel() for parameter in self.shell.parameters())

    def load(self, device: torch.device) -> Transformer:
        """Load it with its weights. Raises CheckpointError where they are damaged."""
        return load(self.path, device=device)


def find_candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Find models by their folders, without reading weights.

    Raises ConfigError where one is named twice, CheckpointError where there is none.
    """
    names = _names(paths)
    return [_candidate(name, path) for name, path in zip(names, paths, strict=True)]


def _candidate(name: str, path: Path) -> Candidate:
    folder = find_model(path)
    shell = shell_of(folder)
    recipe = find_recipe(path)
    return Candidate(name, path, shell, None if recipe is None else read_run_recipe(recipe))


def shell_of(folder: Path) -> Transformer:
    """Return the model of a model folder without its weights. Raises CheckpointError."""
    with torch.device("meta"):
        shell = compose(read_config(folder))
    shell.tokenizer = load_model_tokenizer(folder)
    shell.task = load_task(folder)
    return shell.eval()


def _names(paths: Sequence[Path]) -> list[str]:
    """Name models by the ends of their paths, as much of each as tells them apart."""
    parts = [_parts(path) for path in paths]
    for own, path in zip(parts, paths, strict=True):
        if parts.count(own) > 1:
            raise ConfigError(f"{path} is named twice: leave one out")
    names = []
    for own in parts:
        n = 1
        while n < len(own) and sum(other[-n:] == own[-n:] for other in parts) > 1:
            n += 1
        names.append("/".join(own[-n:]))
    return names


def _parts(path: Path) -> tuple[str, ...]:
    parts = resolved(path).parts
    if len(parts) > 2 and parts[-1] == MODEL_NAME:
        parts = parts[:-1]
    if len(parts) > 2 and parts[-2] == CHECKPOINTS_NAME:
        # A step says nothing without its run.
        return (*parts[:-3], f"{parts[-3]}/{parts[-1]}")
    return parts
