"""README, CONTRIBUTING, docs and notebook: commands, code, links and names are as they are here."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile

import pytest
from typer.main import get_command

import sublayer
from sublayer import cli
from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.catalog import TABLES, declaration, declarations, keys
from sublayer.config.fields.messages import choices_of
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.kinds import OBJECTIVES
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.errors import SublayerError
from sublayer.study.asked import is_run, load_asked, split_words
from sublayer.study.definition import find_study, load_study
from sublayer.suite.file import read_suite
from sublayer.tasks.registry import TASKS
from tests.commands.reviews import reviews, write_csv
from tests.documentation import PAGES, PROJECT, Command, blocks, commands, inline_code
from tests.wrapping import unwrapped

DOCS = PROJECT / "docs"
NOTEBOOK = json.loads((PROJECT / "examples" / "first-hour.ipynb").read_text(encoding="utf-8"))
NOT_FIELDS = {"model.safetensors", "train.c", "train.csv", "train.jsonl", "train.tsv"}
SUBLAYER = [command for command in commands(*PAGES) if command.line.startswith("sublayer ")]
TRANSCRIPTS = [command for command in SUBLAYER if command.shown is not None]
EXAMPLES = [
    Command(name, str(import_module(f"sublayer.commands.{module}").EXAMPLE), ())
    for name, (module, _) in cli.COMMANDS.items()
]
FEW = '"train.steps": 2, "train.threads": 1, "train.precision": "float32"'
FEW_ROWS = f'"train.batch_sequences": 2, {FEW}'
ONE_LAYER = '"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2'
SMALLER = {
    '"model.d_model": 64, "train.steps": 200': f'"model.d_model": 16, {FEW_ROWS}',
    'settings = {"model.n_layers": 2': 'settings = {"data.path": "book.txt", "model.n_layers": 2',
    '"book.txt", "train.minutes": 2}': f'"book.txt", "data.vocab_size": 150, {FEW_ROWS}}}',
    '{"train.epochs": 1}': f"{{{ONE_LAYER}, {FEW}}}",
    '"train.minutes": 2, "optimizer.warmup_share"': (
        f'"data.vocab_size": 100, "train.batch_tokens": 512, {FEW}, "optimizer.warmup_share"'
    ),
}
"""Lengths and sizes that the pages show, and what takes seconds."""
_WITH_LINKS = ("*.md", "docs/*.md", "benchmarks/**/*.md", "records/*/*.md", "tests/**/*.md")
LINKED = [page for pattern in _WITH_LINKS for page in sorted(PROJECT.glob(pattern))]
_REFERENCE = ("fields", "commands", "devices", "records", "tasks")
GENERATED = [f"reference/{name}.md" for name in _REFERENCE]
"""What ``docs/generate.py`` writes; the build of the site checks links to it."""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the files that the pages tell a reader to write."""
    for page in PAGES:
        for block in blocks(page, "toml"):
            name = re.match(r"# (\S+\.toml)\n", block)
            assert name, f"{page.name}: a recipe is shown without its file's name"
            (tmp_path / name[1]).write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_pages_show_every_command_and_every_command_an_example(workplace):
    assert {command.line.split()[1] for command in SUBLAYER} >= set(cli.COMMANDS)
    assert len(TRANSCRIPTS) >= 5
    assert [example.line.split()[1] for example in EXAMPLES] == list(cli.COMMANDS)
    assert [error for example in EXAMPLES for error in mistakes(example)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_commands_fields_and_paths_that_exist(page, workplace):
    assert [error for command in commands(page) for error in mistakes(command)] == []
    code = inline_code(page)
    named = re.findall(rf"(?<![\w/])(?:{'|'.join(TABLES)})\.[a-z_]+\b", "\n".join(code))
    assert [key for key in sorted({*named} - NOT_FIELDS) if not declarations(key)] == []
    paths = [each for each in code if re.fullmatch(r"(sublayer|tests|docs|benchmarks)/\S*", each)]
    assert [path for path in paths if not (PROJECT / path).exists()] == []
    # A site shows a line of `console` without a prompt as output; commands alone are `sh`.
    assert [block for block in blocks(page, "console") if not block.startswith("$ ")] == []
    places = re.findall(r"(?<![\w.])/(?:home|root|tmp|Users|work|mnt)/\S*", page.read_text())
    assert places == [], "a path of one machine"


def mistakes(command):
    words = shlex.split(command.line)
    if words[:1] != ["sublayer"] or words[1].startswith("-"):
        return []
    try:
        check(words[1:], is_transcript=command.shown is not None)
    except SublayerError as error:
        return [f"{command.line}: {error}"]
    return []


def check(words, *, is_transcript):
    parser = get_command(cli._app(words[0])).commands[words[0]]
    words = list(takewhile(lambda word: word not in ("<", ">", "|"), words))
    values = parser.make_context(words[0], words[1:]).params if "--help" not in words else {}
    source, settings = values.get("source") or values.get("recipe"), values.get("settings")
    if words[0] in ("plan", "compare"):
        settings = values.get("words")
    if source is None or settings is None or is_transcript:
        return
    # A run that a reader would have by then stands for the recipe that it came from.
    source = "gpt" if source.startswith("runs/") else str(source)
    settings = [setting for setting in settings if not setting.startswith("init.run=")]
    if words[0] in ("plan", "compare"):
        sources, settings = split_words(source, settings)
        if not any(is_run(each) or each.startswith("runs/") for each in sources):
            load_asked(sources, settings, vary_texts=values.get("vary") or [])
    else:
        load_recipe(source, settings)


@pytest.mark.parametrize(
    "command", TRANSCRIPTS, ids=lambda command: f"{command.page}: {command.line}"
)
def test_a_command_prints_what_is_shown(command, workplace, capsys):
    cli.main(shlex.split(command.line)[1:])
    out, err = capsys.readouterr()
    assert command.shown
    # "..." stands for lines, an ellipsis for the rest of one: what differs from machine to machine.
    lines = (re.escape(line).replace("…", ".*") + r"\n" for line in command.shown)
    pattern = "".join(lines).replace(r"\.\.\.\n", r"(?:.*\n)*")
    printed = (out + err).replace("\N{NO-BREAK SPACE}", " ")
    assert re.fullmatch(pattern, printed), f"{command.line} prints:\n{printed}"


def test_make_has_every_target_that_is_shown():
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, flags=re.MULTILINE))
    lines = [command.line.split() for command in commands(*PAGES)]
    shown = {words[1] for words in lines if words[0] == "make"}
    assert {"demo", "test"} <= shown <= targets


def test_the_files_that_are_shown_are_recipes_studies_and_suites(workplace):
    files = sorted(workplace.glob("*.toml"))
    assert len(files) >= 2
    for path in files:
        if path.name == "suite.toml":
            assert read_suite(path).title
        elif find_study(path.name):
            assert len(load_study(path.name).arms) >= 2
        else:
            assert load_recipe(path.name).recipe.title


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_have_the_speeds_of_the_benchmarks_and_all_kinds_of_models(page):
    text = (PROJECT / page).read_text()
    section = text.partition("| | ")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.search(r"\| [\d. to]+ \|", line)]
    speeds = re.findall(r"\b\d\.\d\d\b", "\n".join(row for row in rows if "| ---" not in row))
    measured = (PROJECT / "benchmarks" / "README.md").read_text()
    assert len(speeds) > 20
    assert [speed for speed in speeds if speed not in measured] == []
    introduction = unwrapped(text.partition("\n## ")[0].lower())
    kinds = list(choices_of(declaration("model.kind").annotation))
    assert [kind for kind in kinds if re.search(rf"(?<!-)\b{kind}s?\b", introduction)] == kinds


def rows(page, heading):
    section = (DOCS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return sorted(re.findall(r"^\| `([\w-]+)` \|", section, flags=re.MULTILINE))


def test_the_pages_name_every_choice_package_and_public_name():
    positions = choices_of(declaration("model.positions").annotation)
    assert rows("model.md", "Feed-forward networks") == sorted(FFNS)
    assert rows("model.md", "Positions") == sorted(positions)
    assert rows("training.md", "What is learned") == sorted(OBJECTIVES)
    named = re.search(r"`optimizer.kind` is ([^;]*);", (DOCS / "training.md").read_text())
    assert named and sorted(re.findall(r"`(\w+)`", named[1])) == sorted(OPTIMIZERS)
    package = PROJECT / "sublayer"
    files = [path for kind in ("py", "toml") for path in package.rglob(f"*/*.{kind}")]
    packages = {f"{path.parent.relative_to(PROJECT).as_posix()}/" for path in files}
    modules = {f"sublayer/{path.name}" for path in package.glob("*.py")} - {"sublayer/__main__.py"}
    assert (packages | modules) - set(inline_code(PROJECT / "CONTRIBUTING.md")) == set()
    words = set(re.findall(r"[A-Za-z_]+", " ".join(inline_code(DOCS / "python.md"))))
    assert set(sublayer.__all__) - words == {"__version__"}


def generator():
    spec = spec_from_file_location("generate", DOCS / "generate.py")
    assert spec and spec.loader
    generate = module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


def test_the_reference_has_every_field_command_task_and_record():
    generate = generator()
    fields, shown, tasks = generate.fields_page(), generate.commands_page(), generate.tasks_page()
    assert [key for key in keys() if f"### `{key}`\n" not in fields] == []
    assert [name for name in cli.COMMANDS if f"## {name}\n" not in shown] == []
    assert [task.title for task in TASKS.values() if f" | {task.title} | " not in tasks] == []
    pages = "\n".join(path.read_text() for path in PROJECT.glob("docs/*.md"))
    for record in sorted(PROJECT.glob("records/*/")):
        assert f"](reference/records.md#{record.name})" in pages, record
        section = generate.records_page().partition(f"\n## {record.name}\n")[2]
        section = section.partition("\n## ")[0]
        assert re.search(r"^\| .*\d", section, flags=re.MULTILINE), f"no result of {record}"
        assert "### What does not follow" in section, record


def test_the_site_asks_nothing_of_other_servers(tmp_path):
    for folder in ("docs", "records"):
        shutil.copytree(PROJECT / folder, tmp_path / folder)
    shutil.copy(PROJECT / "zensical.toml", tmp_path)
    subprocess.run([sys.executable, "docs/generate.py"], cwd=tmp_path, check=True)
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    loaded = r"<(?:link|script|img|iframe|source)\b[^>]*\b(?:href|src)=[\"']?(?:https?:)?//[^>]*>"
    assert [found for page in pages for found in re.findall(loaded, page.read_text())] == []


def run_python(code, folder):
    environment = {"SUBLAYER_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    given = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", code], **given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page, n_smaller, last", [
    ("README.md", 2, r"ffn=swiglu \S+ \S+ (better|worse|cannot tell)"),
    ("docs/python.md", 4, "--stride 0 is too small: give at least 1"),
])  # fmt: skip
def test_the_python_of_a_page_runs_in_order(tmp_path, page, n_smaller, last):
    sentences = (
        "It was a bright cold day, and the clocks were striking.",
        "Nobody knew why the harbour was empty.", "She read the letter twice and said nothing.",
    )  # fmt: skip
    for name in ("book.txt", "train.en", "train.de"):
        (tmp_path / name).write_text("\n".join(sentences * 200))
    write_csv(tmp_path / "my.csv", reviews(40))
    code = "\n".join(blocks(PROJECT / page, "python"))
    found = []
    for whole, small in SMALLER.items():
        found += [whole] if whole in code else []
        code = code.replace(whole, small)
    assert len(found) == n_smaller
    assert re.fullmatch(last, run_python(code, tmp_path).splitlines()[-1])


CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.pages
def test_the_cells_of_the_notebook_run_in_order(tmp_path):
    code = "\n".join("".join(cell["source"]) for cell in CELLS)
    assert "steps = 300" in code
    run_python(code.replace("steps = 300", "steps = 3"), tmp_path)


def test_the_notebook_is_kept_as_it_ran():
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    shown = [output for cell in CELLS for output in cell["outputs"]]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert not re.search(r"/(?:home|root|tmp|work)/", json.dumps(NOTEBOOK))


def prose(page):
    fenced = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("](", "] ("), fenced)


def anchors(text):
    """What headings are linked by, on the site as where the pages are browsed."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


def broken(page):
    found = []
    for link in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", prose(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if target in [DOCS / each for each in GENERATED]:
            continue
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(prose(target)):
            found.append(f"{link}: there is no such heading")
    return found


def test_every_link_leads_to_a_file_and_a_heading():
    found = {page.relative_to(PROJECT).as_posix(): broken(page) for page in LINKED}
    assert {page: links for page, links in found.items() if links} == {}


def test_the_menu_of_the_documentation_names_every_page_once():
    menu = json.dumps(tomllib.loads((PROJECT / "zensical.toml").read_text())["project"]["nav"])
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md")]
    assert sorted(re.findall(r'"([\w/-]+\.md)"', menu)) == sorted([*pages, *GENERATED])
