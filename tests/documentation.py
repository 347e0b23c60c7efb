"""The pages that people read, and the commands that they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGES = (
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    PROJECT / "CHANGELOG.md",
    *sorted(PROJECT.glob("docs/*.md")),
)


@dataclass(frozen=True)
class Command:
    """A command line of a page; ``shown`` is what the page says it prints, or None."""

    page: str
    line: str
    shown: tuple[str, ...] | None


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )


def inline_code(page: Path) -> list[str]:
    """Return what the prose of a page shows as code."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def commands(*pages: Path) -> Iterator[Command]:
    """Read the commands of pages, in order: lines of ``sh``, and transcripts of ``console``."""
    for page in pages:
        for language, block in _shell_blocks(page):
            if language == "console":
                first, *shown = block.splitlines()
                yield Command(page.name, first.removeprefix("$ "), tuple(shown))
            else:
                for line in block.splitlines():
                    yield Command(page.name, line.partition("  #")[0].strip(), None)


def _shell_blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(
        r"^```(sh|console)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
