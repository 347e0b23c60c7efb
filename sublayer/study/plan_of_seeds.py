"""How many seeds a comparison has, which, and what it may call no difference: as asked."""

from dataclasses import replace

from sublayer.errors import ConfigError
from sublayer.statistics.looks import Looks, fixed, until_decided
from sublayer.study.definition import Study
from sublayer.study.options import Options
from sublayer.study.seeds import FIRST_TUNING_SEED, Seeds


def with_margin(study: Study, margin: str | None) -> Study:
    """Return a study with the margin that was asked for; its own where none was."""
    if margin is None:
        return study
    reason = "given on the command line"
    return replace(study, question=replace(study.question, margin=margin, margin_reason=reason))


def asked_looks(options: Options, n_seeds: int) -> Looks:
    """Return when a comparison is judged: at ``--seeds``, or where it is decided.

    ``n_seeds`` is the study's own number. Raises ConfigError for options that exclude each other.
    """
    if options.until is None:
        if options.seeds_at_most is not None:
            raise ConfigError("--seeds-at-most is of --until decided: give that too, or --seeds")
        return fixed(n_seeds if options.seeds is None else options.seeds)
    if options.until != "decided":
        raise ConfigError(f"--until {options.until} is no end of a comparison: give decided")
    if options.seeds is not None:
        raise ConfigError(
            "--seeds is a fixed number of seeds, which --until decided leaves open: give "
            "--seeds-at-most instead"
        )
    if options.seeds_at_most is None:
        raise ConfigError(
            "--until decided needs an end: say how many seeds you would spend, as "
            "--seeds-at-most 20"
        )
    return until_decided(options.seeds_at_most)


def asked_seeds(options: Options, n_seeds: int, *, is_tuned: bool) -> Seeds:
    """Return the seeds that are asked for; raise ConfigError where tuning seeds are compared."""
    seeds = Seeds(
        first=options.first_seed or 0,
        n_tuning=options.tuning_seeds or 1,
        first_tuning=(
            FIRST_TUNING_SEED if options.first_tuning_seed is None else options.first_tuning_seed
        ),
    )
    asked = {
        "--tuning-seeds": options.tuning_seeds,
        "--first-tuning-seed": options.first_tuning_seed,
        "--extend": options.extend,
    }
    given = tuple(name for name, value in asked.items() if value is not None)
    seeds.check(n_seeds, is_tuned=is_tuned, asked=given)
    return seeds
