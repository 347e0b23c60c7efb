"""``sublayer runs``: runs and comparisons below folders, and how to resume them."""

from collections.abc import Sequence
from typing import Annotated, Any

from sublayer.api.run import list_runs
from sublayer.cli.build import Json, client_of, print_result
from sublayer.options import Argument

EXAMPLE = "sublayer runs"

Folders = Annotated[
    Sequence[str], Argument("Folders to look for runs in. Default: runs.", metavar="FOLDER")
]


@client_of(list_runs)
def command(options: dict[str, Any], folders: Folders = (), as_json: Json = False) -> None:
    """List runs, comparisons and imported models, the newest first.

    A score is the best on the validation split during training, unless it is marked (test). Below
    an unfinished one stands the command that resumes it. Nothing is written, and no model is
    loaded.
    """
    print_result(list_runs(*folders, **options), as_json)
