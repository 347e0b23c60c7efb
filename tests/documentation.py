"""The pages that people read, and the commands that they show."""

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(PROJECT.glob("docs/*.md"))


@dataclass(frozen=True)
class Command:
    """A command line of a page; ``shown`` is what the page says it prints, or None."""

    page: str
    line: str
    shown: tuple[str, ...] | None


def blocks(page, language):
    return [block for _, block in _fenced(page, language)]


def inline_code(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def commands(*pages):
    """Read the commands of pages, in order: lines of ``sh``, and transcripts of ``console``."""
    for page in pages:
        for language, block in _fenced(page, "sh|console"):
            if language == "console":
                first, *shown = block.splitlines()
                yield Command(page.name, first.removeprefix("$ "), tuple(shown))
            else:
                for line in block.splitlines():
                    yield Command(page.name, line.partition("  #")[0].strip(), None)


def _fenced(page, languages):
    found = rf"^```({languages})\n(.*?)^```$"
    return re.findall(found, page.read_text(), flags=re.MULTILINE | re.DOTALL)
