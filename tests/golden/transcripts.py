"""Command lines run in this process, shown as a person sees them in a terminal."""

import html
import io
import json
import re
import shlex
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sublayer.cli import main as cli
from tests.golden.core import lay_out

MASKED = "…"
_SEALED = re.compile(r"\d+-\d+-\d+ \d+:\d+ UTC(\W+hash )[0-9a-f]{12}")
_MASKS = [
    (re.compile(pattern, re.MULTILINE), masked)
    for pattern, masked in (
        (r"[\d,]+ tokens/s(  ETA [\d:]+)?", "… tokens/s"),
        (r"(?<=tokens in )\d+ s ", "… s "),
        (r"\b(tokens?, )[\d,]+ a second", r"\1… a second"),
        (r"^(memory: )[\d.]+ \w*B at most,[^:]*?leaves out", r"\1…"),
        (r"^(! expected +).*", r"\1…"),
        (r"(?<=\d), about [\d:]+ to go\]", "]"),
        (r"(?<=, after )[\d:]+$", "…"),
        (r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b(.*?)([\d.]+ (s|min))?$", r"… \1…"),
        (r"\d+%(?= of\s+the\s+time)", "…"),
        (r"free here:[^:]*?of\s+disk", "free here: …"),
        (r"(Finished\s+on\s+)\d+-\d+-\d+", r"\1…"),
        (r"\bsublayer \d[\w.]*", "sublayer …"),
        (r"\btransformers \d[\w.]*", "transformers …"),
        (r"(?<=version:)[\d.]+", "…"),
        (r"\d\.\de[-+]\d\d in float", "… in float"),
        (r"^! (\[.*\] .*: )?about [\d:]+ to go, by the first steps\n", ""),
        (r"(evaluation;\s+valid\s+is\s+)[\d.]+", r"\1…"),  # of two losses that are held
        (r"^! \[\d+/\d+.*?\] running .*\n", ""),  # where nothing ended for long
        (r"^(Versions and machine\n)(.*\n)*?(?=Checksums)", r"\1…\n"),
        (r"^(tokens/s|memory|time|data\.path|init\.run) \| .*", r"\1 | …"),
        # Whether arms took the same time decides what is drawn.
        (r"^seconds of a run\n.*\n", ""),
        (r" All arms have the same time, within 0\.5%\.", ""),
        (r"(?<=All arms have the same )time(, | and )", ""),
    )
]
"""What differs from machine to machine, or by its load, and what stands there in a transcript."""
_TIMED_COLUMNS = {"tokens/s", "memory", "time"}
_MACHINE = {
    "available",
    "commit",
    "date",
    "environment",
    "float32",
    "float64",
    "hash",
    "machine",
    "peak_memory_bytes",
    "sealed",
    "seconds",
    "tokens_per_s",
    "training_seconds",
    "versions",
    "when",
}
"""Names of values in JSON that differ from machine to machine."""
_BLOCKS = (
    "p|div|h[1-6]|tr|li|[uo]l|table|section|figure|svg|g|text|title|summary|details|pre|d[tdl]|"
    "figcaption|caption|thead|tbody|main|header|footer"
)


def transcript(lines: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run command lines in the current folder; return each with what it printed.

    Lines of standard error begin with ``! ``. Beside ``sublayer WORDS``, which may read a file by
    ``< FILE``, there is ``cat FILE``; a page of HTML is shown as its visible text.
    """
    shown = []
    for line in lines:
        program, *words = shlex.split(line)
        shown.append(f"$ {line}")
        if program == "cat":
            shown += _read(Path(words[0])).splitlines()
        else:
            assert program == "sublayer"
            out, err, code = run(words, capsys)
            shown += [f"! {each}".rstrip() for each in err.splitlines()]
            shown += _laid_out(out).splitlines()
            shown += [f"[exit {code}]"] if code else []
        shown.append("")
    return _masked("\n".join(shown))


def refusals(lines: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run command lines that are refused; return each with the last line that it printed."""
    shown = []
    for line in lines:
        _, err, code = run(shlex.split(line), capsys)
        assert code == 2, f"sublayer {line}: exit code {code}"
        shown += [f"$ sublayer {line}", f"  {err.splitlines()[-1]}"]
    return _masked("\n".join([*shown, ""]))


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str, int]:
    """Run one command line; return standard output, standard error and the exit code."""
    given = b""
    if "<" in words:
        given = Path(words[-1]).read_bytes()
        words = words[: words.index("<")]
    with pytest.MonkeyPatch.context() as patch:
        stream = SimpleNamespace(buffer=io.BytesIO(given), isatty=lambda: False)
        patch.setattr(sys, "stdin", stream)
        code = cli.main(words)
    out, err = capsys.readouterr()
    return out, err, code


def without_machine(value: Any) -> Any:
    """Replace what differs from machine to machine in JSON."""
    if isinstance(value, list):
        return [without_machine(each) for each in value]
    if isinstance(value, str):
        return _without_folder(value)
    if not isinstance(value, dict):
        return value
    return {
        name: MASKED if name in _MACHINE and each is not None else without_machine(each)
        for name, each in value.items()
    }


def _laid_out(out: str) -> str:
    """Spread an object of JSON over lines; mask columns of other output."""
    try:
        value = json.loads(out)
    except ValueError:
        return "\n\n".join(map(_without_timed_columns, out.split("\n\n")))
    return lay_out(without_machine(value)) if isinstance(value, dict | list) else out


def _without_timed_columns(block: str) -> str:
    """Mask the columns of a table that differ by the machine's load, and show it unaligned."""
    lines = block.split("\n")
    dashes = next((n for n, line in enumerate(lines) if re.fullmatch("-[- ]*", line)), 0)
    spans = [match.span() for match in re.finditer("-+", lines[dashes])]
    rows = [[line[start:end].strip() for start, end in spans] for line in lines]
    names = [" ".join(cells).strip() for cells in zip(*rows[:dashes], strict=True)]
    if not {"arm", "time"} <= set(names):
        return block
    gaps = [at for (_, end), (start, _) in pairwise(spans) for at in range(end, start)]
    n_rows = dashes + 1
    while n_rows < len(lines) and all(lines[n_rows][at : at + 1] in ("", " ") for at in gaps):
        n_rows += 1
    return "\n".join(
        [_cells(names, row) for row in [names, *rows[dashes + 1 : n_rows]]] + lines[n_rows:]
    )


def _cells(names: list[str], row: list[str]) -> str:
    return " | ".join(
        MASKED if cell and cell != name and name in _TIMED_COLUMNS else cell
        for name, cell in zip(names, row, strict=True)
    )


def _masked(text: str) -> str:
    text = _without_folder(text)
    for pattern, masked in _MASKS:
        text = pattern.sub(masked, text)
    return "".join(
        f"\\x{ord(c):02x}" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c
        for c in text
    )


def _without_folder(text: str) -> str:
    text = _SEALED.sub(r"… UTC\1…", text)
    return text.replace(f"{Path.cwd()}/", "").replace(str(Path.cwd()), ".")


def _read(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return _visible_text(text) if path.suffix == ".html" else text


def _visible_text(page: str) -> str:
    """Return the text of a page of HTML, a block a line, without the numbers of its axes."""
    page = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"(\s|<br[^>]*>)+", " ", page)
    page = re.sub(r"</t[dh]>\s*<t[dh]\b[^>]*>", " | ", page)
    page = re.sub(rf"</?({_BLOCKS})\b[^>]*>", "\n", page)
    page = html.unescape(re.sub(r"<[^>]*>", "", page))
    lines = [re.sub(r"\s+", " ", line).strip() for line in page.split("\n")]
    lines = [line for line in lines if re.search(r"[^\W\d]", line)]
    names: list[str] = []
    for place, line in enumerate(lines):
        cells = line.split(" | ")
        if len(cells) != len(names):
            names = cells if cells[0] == "arm" else []
        else:
            lines[place] = _cells(names, cells)
    return "\n".join(lines)
