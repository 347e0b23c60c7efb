"""README, CONTRIBUTING and the docs: commands parse, transcripts are true, names exist."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

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
from tests.documentation import PAGES, PROJECT, Command, blocks, commands, inline_code
from tests.wrapping import unwrapped

NOT_FIELDS = {"model.safetensors", "train.c", "train.csv", "train.jsonl", "train.tsv"}


SUBLAYER = [command for command in commands(*PAGES) if command.line.startswith("sublayer ")]
TRANSCRIPTS = [command for command in SUBLAYER if command.shown is not None]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages tell a reader to write."""
    for page in PAGES:
        for block in blocks(page, "toml"):
            name = re.match(r"# (\S+\.toml)\n", block)
            assert name, f"{page.name}: a recipe is shown without its file's name"
            (tmp_path / name[1]).write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_pages_show_every_command():
    assert {command.line.split()[1] for command in SUBLAYER} >= set(cli.COMMANDS)
    assert len(TRANSCRIPTS) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_commands_fields_and_paths_that_exist(page: Path, workplace: Path):
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


def mistakes(command: Command) -> list[str]:
    """Return the error of a command of ours that does not parse or load, with its line."""
    words = shlex.split(command.line)
    if words[:1] != ["sublayer"] or words[1].startswith("-"):
        return []
    try:
        check(words[1:], is_transcript=command.shown is not None)
    except SublayerError as error:
        return [f"{command.line}: {error}"]
    return []


def check(words: list[str], *, is_transcript: bool) -> None:
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
def test_a_command_prints_what_is_shown(
    command: Command, workplace: Path, capsys: pytest.CaptureFixture[str]
):
    cli.main(shlex.split(command.line)[1:])
    out, err = capsys.readouterr()
    assert command.shown
    # "..." stands for lines, an ellipsis for the rest of one: what differs from machine to machine.
    lines = (re.escape(line).replace("…", ".*") + r"\n" for line in command.shown)
    pattern = "".join(lines).replace(r"\.\.\.\n", r"(?:.*\n)*")
    printed = (out + err).replace("\N{NO-BREAK SPACE}", " ")
    assert re.fullmatch(pattern, printed), f"{command.line} prints:\n{printed}"


def test_make_has_every_target_that_is_shown():
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text(), flags=re.MULTILINE)
    )
    shown = {
        command.line.split()[1] for command in commands(*PAGES) if command.line.startswith("make ")
    }
    assert shown >= {"demo", "test"}
    assert shown <= targets


def test_the_files_that_are_shown_are_recipes_studies_and_suites(workplace: Path):
    files = sorted(workplace.glob("*.toml"))
    assert len(files) >= 2
    for path in files:
        if path.name == "suite.toml":
            assert read_suite(path).title
        elif find_study(path.name):
            assert len(load_study(path.name).arms) >= 2
        else:
            assert load_recipe(path.name).recipe.title


def test_the_index_shows_what_the_demo_prints():
    index = PROJECT / "docs" / "index.md"
    (shown,) = (text for text in blocks(index, "text") if "\nreport: " in text)
    study = load_study("demo")
    first, *arms = (arm.name for arm in study.arms)
    assert len(shown.splitlines()) <= 15
    assert unwrapped(shown).startswith(study.title)
    assert re.findall(rf"^  ([a-z-]+) .* {first}", shown, re.MULTILINE) == arms
    assert "sublayer compare demo" in shown


def test_a_record_is_linked_from_a_page_and_shown_with_what_does_not_follow():
    pages = "\n".join(path.read_text() for path in PROJECT.glob("docs/*.md"))
    shown = generator().records_page()
    for record in sorted(PROJECT.glob("records/*/")):
        assert f"](reference/records.md#{record.name})" in pages, record
        section = shown.partition(f"\n## {record.name}\n")[2].partition("\n## ")[0]
        assert re.search(r"^\| .*\d", section, flags=re.MULTILINE), f"no result of {record}"
        assert "### What does not follow" in section, record


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_speeds_of_the_first_pages_are_those_of_the_benchmarks(page: str):
    _, _, section = (PROJECT / page).read_text().partition("| | ")
    table = [line for line in section.partition("\n## ")[0].splitlines() if "| ---" not in line]
    rows = [line for line in table if re.search(r"\| [\d. to]+ \|", line)]
    speeds = re.findall(r"\b\d\.\d\d\b", "\n".join(rows))
    measured = (PROJECT / "benchmarks" / "README.md").read_text()
    assert len(speeds) > 20
    assert [speed for speed in speeds if speed not in measured] == []


def rows(page: str, heading: str) -> list[str]:
    """What the first column of the table below a heading names, as code."""
    _, _, section = (PROJECT / page).read_text().partition(f"## {heading}\n")
    return re.findall(r"^\| `([\w-]+)` \|", section.partition("\n## ")[0], flags=re.MULTILINE)


def test_the_tables_of_the_pages_have_a_row_for_each_choice():
    positions = choices_of(declaration("model.positions").annotation)
    assert sorted(rows("docs/model.md", "Feed-forward networks")) == sorted(FFNS)
    assert sorted(rows("docs/model.md", "Positions")) == sorted(positions)
    assert sorted(rows("docs/training.md", "What is learned")) == sorted(OBJECTIVES)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_name_every_kind_of_model(page: str):
    introduction = " ".join((PROJECT / page).read_text().partition("\n## ")[0].lower().split())
    kinds = choices_of(declaration("model.kind").annotation)
    said = [kind for kind in kinds if re.search(rf"(?<!-)\b{kind}s\b", introduction)]
    assert said == list(kinds)


def test_optimizers_are_named_where_they_are_described():
    named = re.search(r"`optimizer.kind` is ([^;]*);", (PROJECT / "docs/training.md").read_text())
    assert named
    assert sorted(re.findall(r"`(\w+)`", named[1])) == sorted(OPTIMIZERS)


def test_the_tour_names_every_package_and_module():
    tour = set(inline_code(PROJECT / "CONTRIBUTING.md"))
    package = PROJECT / "sublayer"
    files = [path for kind in ("py", "toml") for path in package.rglob(f"*/*.{kind}")]
    packages = {f"{path.parent.relative_to(PROJECT).as_posix()}/" for path in files}
    modules = {f"sublayer/{path.name}" for path in package.glob("*.py")} - {"sublayer/__main__.py"}
    assert sorted((packages | modules) - tour) == []


def generator() -> ModuleType:
    """Load what writes the pages that are generated."""
    spec = spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    generate = module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


def test_the_reference_has_every_field_and_every_command():
    generate = generator()
    fields, shown, tasks = generate.fields_page(), generate.commands_page(), generate.tasks_page()
    assert [key for key in keys() if f"### `{key}`\n" not in fields] == []
    assert [name for name in cli.COMMANDS if f"## {name}\n" not in shown] == []
    assert [task.title for task in TASKS.values() if f" | {task.title} | " not in tasks] == []


def test_the_site_asks_nothing_of_other_servers(tmp_path: Path):
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
    for page in pages:
        assert re.findall(loaded, page.read_text()) == [], page


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert f'\nversion: "{version}"\n' in (PROJECT / "CITATION.cff").read_text()
    assert f"\n## [{version}]\n" in (PROJECT / "CHANGELOG.md").read_text()


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (code,) = blocks(PROJECT / "README.md", "python")
    assert '"train.steps": 200}' in code
    smaller = (
        '"train.steps": 2, "train.threads": 1, "train.precision": "float32", '
        '"data.context": 32, "data.path": "a.txt"}'
    )
    shorter = code.replace('"train.steps": 200}', smaller).replace(
        '{"model.d_ff": 256}', '{"data.path": "a.txt"}'
    )
    (tmp_path / "a.txt").write_text(
        "The tokenizer of a text is what the model reads it by.\n" * 100
    )
    monkeypatch.chdir(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", shorter], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    first, *_, last = ran.stdout.splitlines()
    assert 0 < float(first) < 16
    assert re.fullmatch(r"ffn=swiglu \S+ \S+ (better|worse|cannot tell)", last)
