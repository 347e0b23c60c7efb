"""A chain as it is asked for: what the command line says of its stages."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.errors import ConfigError
from sublayer.study.chain.stages import FINETUNE
from sublayer.study.definition import Study
from sublayer.study.options import Options


def as_asked(study: Study, tune: Sequence[str], finetunings: int | None, data: str | None) -> Study:
    """Return a study with what is told of its stages; one without stages as it is.

    Raises ConfigError for what has no effect on it.
    """
    if study.chain is None:
        _check_without(study.name, tune, finetunings, data)
        return study
    if study.tune:
        raise ConfigError(
            f"{study.name} has stages, and tunes its pre-training: write tune_finetune, which is "
            "chosen by the tasks' scores"
        )
    if data is not None and not any(stage.tasks for stage in study.chain.stages):
        raise ConfigError(
            f"--data is of stages of published tasks, of which {study.name} has none: leave it out"
        )
    told = []
    for text in tune:
        if not text.startswith(f"{FINETUNE}."):
            raise ConfigError(
                f"--tune {text}: of {study.name} the stages of tasks are tuned: write "
                f"--tune {FINETUNE}.{text}"
            )
        told.append(text.removeprefix(f"{FINETUNE}."))
    chain = replace(
        study.chain,
        n_seeds=study.chain.n_seeds if finetunings is None else finetunings,
        data=data,
        tune=tuple(told) or study.chain.tune,
    )
    return replace(study, chain=chain)


def check_options(options: Options) -> None:
    """Raise ConfigError for what is not of chains."""
    asked = {
        "--until": options.until,
        "--seeds-at-most": options.seeds_at_most,
        "--first-seed": options.first_seed,
        "--tuning-seeds": options.tuning_seeds,
        "--first-tuning-seed": options.first_tuning_seed,
        "--extend": options.extend,
    }
    for name, value in asked.items():
        if value is not None:
            raise ConfigError(
                f"{name} is of studies without stages, whose runs are one training each: leave it "
                "out"
            )


def _check_without(
    study: str, tune: Sequence[str], finetunings: int | None, data: str | None
) -> None:
    for name, value in (("--finetunings", finetunings), ("--data", data)):
        if value is not None:
            raise ConfigError(
                f"{name} is of studies with stages of tasks, of which {study} has none: leave it "
                "out"
            )
    for text in tune:
        if text.startswith(f"{FINETUNE}."):
            raise ConfigError(
                f"--tune {text}: {study} has no stages of tasks to be tuned: leave it out"
            )
