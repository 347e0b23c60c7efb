"""Links lead to files and headings that exist, and every page of the docs is in the menu."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PAGES = (
    *sorted(PROJECT.glob("*.md")),
    *sorted(PROJECT.glob("docs/*.md")),
    *sorted(PROJECT.glob("benchmarks/**/*.md")),
    *sorted(PROJECT.glob("records/*/*.md")),
    *sorted(PROJECT.glob("tests/**/*.md")),
)
GENERATED = {
    PROJECT / "docs" / "reference" / name
    for name in ("fields.md", "commands.md", "devices.md", "records.md", "tasks.md")
}
"""What `docs/generate.py` writes; the build of the site checks links to it."""


def prose(page: Path) -> str:
    """A page without what it shows as code."""
    fenced = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("](", "] ("), fenced)


def links(text: str) -> list[str]:
    return re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text)


def anchors(text: str) -> set[str]:
    """What headings are linked by, on the site as where the pages are browsed."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


def broken(page: Path) -> list[str]:
    found = []
    for link in links(prose(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target in GENERATED:
            continue
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(prose(target)):
            found.append(f"{link}: there is no such heading")
    return found


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    found = {page.relative_to(PROJECT).as_posix(): broken(page) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Why by hand?\n[a](#why-by-hand) [b](#why) [c](page.md#why-by-hand)\n"
        "[d](other.md) [e](https://example.org/x) `f[0](1)`\n```\n[g](none.md)\n# not-one\n```\n"
        "[h](#not-one)\n"
    )
    assert broken(page) == [
        "#why: there is no such heading",
        "other.md: there is no such file",
        "#not-one: there is no such heading",
    ]


def test_the_menu_of_the_documentation_names_every_page_once() -> None:
    menu = tomllib.loads((PROJECT / "zensical.toml").read_text())["project"]["nav"]
    pages = [path.relative_to(PROJECT / "docs").as_posix() for path in PROJECT.glob("docs/*.md")]
    written = [path.relative_to(PROJECT / "docs").as_posix() for path in GENERATED]
    assert sorted(listed(menu)) == sorted([*pages, *written])


def listed(menu: list[dict[str, object]]) -> list[str]:
    found = []
    for entry in menu:
        for content in entry.values():
            found += listed(content) if isinstance(content, list) else [str(content)]
    return found
