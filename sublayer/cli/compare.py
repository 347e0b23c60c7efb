"""``sublayer compare``: which arm is better at an equal budget, and how sure that is."""

from typing import Annotated, Any

import typer

from sublayer.api.comparing import compare
from sublayer.cli.build import client_of
from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonOption
from sublayer.commands.shared.comparison import DetailsOption, show

EXAMPLE = (
    "sublayer compare gpt model.n_layers=2 train.steps=200 --vary model.ffn=gelu,swiglu --seeds 3"
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|STUDY",
        autocompletion=candidates.recipes_and_studies,
        help="A recipe to vary, or a study, by name or .toml file. Or the first of several recipes "
        "or finished runs, which are the arms: the baseline.",
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        autocompletion=candidates.recipes_and_settings,
        help="Further recipes or runs, then settings over all recipes, such as model.d_ff=512.",
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Resume the study in the folder, as happens without it too."),
]


@client_of(compare)
def command(
    options: dict[str, Any],
    source: SourceArgument,
    words: WordsArgument = None,
    resume: ResumeOption = False,
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train every arm at an equal budget with the same seeds, and say which is better, with
    intervals.

    The same command again resumes where it stopped, or shows what there is; with more --seeds it
    trains those that are missing, and intervals widen for the further look. Ctrl-C stops, and what
    is running saves; with --on it goes on, and the same command joins it.
    """
    from sublayer.study.definition import split_words

    sources, settings = split_words(source, words or [])
    compared = compare(sources, settings, **options)
    show(compared.results, compared.report, as_json=as_json, details=details)
