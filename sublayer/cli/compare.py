"""``sublayer compare``: which arm is better at an equal budget, and how sure that is."""

from collections.abc import Sequence
from typing import Annotated, Any

from sublayer.api.comparing import compare
from sublayer.cli.build import Details, Json, client_of, print_compared
from sublayer.options import Argument, Option

EXAMPLE = (
    "sublayer compare gpt model.n_layers=2 train.steps=200 --vary model.ffn=gelu,swiglu --seeds 3"
)

Source = Annotated[
    str,
    Argument(
        "A recipe to vary, or a study, by name or .toml file. Or the first of several recipes "
        "or finished runs, which are the arms: the baseline.",
        metavar="RECIPE|STUDY",
        complete="recipes_and_studies",
    ),
]
Words = Annotated[
    Sequence[str],
    Argument(
        "Further recipes or runs, then settings over all recipes, such as model.d_ff=512.",
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        complete="recipes_and_settings",
    ),
]


@client_of(compare)
def command(
    options: dict[str, Any],
    source: Source,
    words: Words = (),
    resume: Annotated[
        bool, Option("Resume the study in the folder, as happens without it too.")
    ] = False,
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Train every arm at an equal budget with the same seeds, and say which is better, with
    intervals.

    The same command again resumes where it stopped, or shows what there is; with more --seeds it
    trains those that are missing, and intervals widen for the further look. Ctrl-C stops, and
    active runs save; with --on they go on, and the same command joins them.
    """
    from sublayer.study.definition import split_words

    sources, settings = split_words(source, words)
    compared = compare(sources, settings, **options)
    print_compared(compared.results, compared.report, as_json=as_json, details=details)
