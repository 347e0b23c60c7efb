"""``sublayer embed``: a vector of each line of a file."""

from pathlib import Path
from typing import Annotated, Any

from sublayer.api.answering import embed
from sublayer.cli.build import Json, client_of, emit
from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import text_lines
from sublayer.files.paths import as_typed, expanded
from sublayer.files.storage import new_file
from sublayer.options import Argument, Option
from sublayer.system.stages import display, note, stage
from sublayer.tasks.own_table import SUFFIXES
from sublayer.tasks.records import suffix_of

EXAMPLE = "sublayer embed runs/albert-small book.txt --out vectors.npy"

File = Annotated[Path, Argument("A file of texts, one on a line, packed or not.", metavar="FILE")]
Out = Annotated[
    Path,
    Option(
        "The new file of the vectors, which numpy.load reads: float32, a row for each line.",
        metavar="FILE.npy",
    ),
]


@client_of(embed)
def command(
    options: dict[str, Any],
    file: File,
    out: Out,
    as_json: Json = False,
) -> None:
    """Write a vector of each line of a file: the final hidden states of its tokens, pooled.

    Encoders, decoders, LSTMs and the encoders of encoder-decoders have them, fine-tuned or not. A
    line that is longer than the model reads is cut, and said; of an empty one the special tokens
    alone are read, and it has zeros where a model has none.
    """
    if out.exists():
        raise ConfigError(f"{out} exists, and nothing is overwritten: name another file")
    if out.suffix != ".npy":
        raise ConfigError(f"{out} does not end in .npy, as arrays of NumPy do: name one that does")
    if not out.parent.is_dir():
        raise ConfigError(f"the folder {out.parent} is not there: make it, or name another file")
    path = expanded(file)
    if path.is_dir():
        raise DataError(f"{file} is a folder: name a file of lines")
    lines = text_lines(path)
    if suffix_of(path) in SUFFIXES:
        note(f"{file} is a table, which is read line by line, names of columns and all")
    if not lines:
        raise DataError(f"{file} has no lines: there is nothing to embed")

    with stage("starting PyTorch"):
        import numpy as np

        from sublayer.evaluation.vectors import describe_unread, embed_texts
        from sublayer.loading import load
        from sublayer.system.machine import choose_device

    def show(n_done: int) -> None:
        display().change_innermost(
            f"embedding {n_done:,} of {count(len(lines), 'line')}", n_done / len(lines)
        )

    run, pool, normalize = (options[name] for name in ("run", "pool", "normalize"))
    model = load(run, device=choose_device(options.get("device")))
    width = model.model.config.d_model
    written = []
    blocks = embed_texts(
        model, lines, pool=pool, normalize=normalize, batch=options["batch"], progress=show
    )
    with stage("embedding"), new_file(out) as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(lines), width)}
        np.lib.format.write_array_header_1_0(stream, header)
        for block in blocks:
            stream.write(block.values.astype("<f4", copy=False).tobytes())
            written.append(block)
    for line in describe_unread(written, "line"):
        note(line)
    result = {
        "run": str(run),
        "path": str(file),
        "out": str(out),
        "lines": len(lines),
        "width": width,
        "pool": pool,
        "normalized": normalize,
        "cut": sum(int(block.is_cut.sum()) for block in written),
        "empty": sum(int(block.is_empty.sum()) for block in written),
    }
    vectors = f"{count(len(lines), 'vector')} of {width:,} numbers"
    emit(result, as_json, lambda _: f"{vectors} written to {as_typed(str(out))}")
