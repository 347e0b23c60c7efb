"""Whether a batch is enough for the processes that share it."""

from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import resolve_train
from sublayer.counts import count
from sublayer.errors import ConfigError


def check_shares(recipe: Recipe, n_processes: int, *, is_gpu: bool) -> None:
    """Raise ConfigError where one of several processes would have nothing of a batch.

    That is known from the recipe alone, before a text is read.
    """
    if n_processes == 1:
        return
    # Only the batches are wanted, so any length and any split will do; exact has one thread.
    train = resolve_train(recipe, steps=1, valid_tokens=1, is_gpu=is_gpu, threads=1)
    sequences = train.batch_sequences
    if sequences < n_processes:
        name, size = "train.batch_sequences", n_processes
        given = f"{sequences}"
        if recipe.train.batch_tokens is not None:
            name, size = "train.batch_tokens", n_processes * recipe.data.context
            given = f"{recipe.train.batch_tokens}, {count(sequences, 'window')},"
        raise ConfigError(
            f"{name} = {given} is less than the {n_processes} processes: start fewer, or give "
            f"{name}={size} or more"
        )
    n_parts = train.n_micro_batches
    if train.exact and n_parts < n_processes:
        raise ConfigError(
            f"train.exact divides a step into {count(n_parts, 'micro-batch')}, less than the "
            f"{n_processes} processes: start fewer, or give "
            f"train.micro_batch_sequences={sequences // n_processes}"
        )
