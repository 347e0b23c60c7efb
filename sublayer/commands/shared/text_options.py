"""Options of commands that read a text: its documents, and the field that holds it."""

from typing import Annotated

import typer

from sublayer.config.data import DocumentRule

DocumentsOption = Annotated[
    DocumentRule | None,
    typer.Option(
        "--documents",
        help="What counts as one document of --path: each file, each block between blank lines, "
        "each JSON record, or each row of CSV (the field data.documents).",
    ),
]
TextFieldOption = Annotated[
    str | None,
    typer.Option(
        "--text-field",
        metavar="NAME",
        help="The field of JSON, or the column of CSV or Parquet, that holds the text of --path "
        "(the field data.text_field).",
    ),
]
