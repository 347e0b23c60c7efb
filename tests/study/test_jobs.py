"""Runs of a comparison in turn and side by side: jobs, shares of the machine, stops, displays."""

import io
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from sublayer.api.comparing import compare, plan
from sublayer.cli.main import INTERRUPTED
from sublayer.config.load import load_recipe
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError, ConfigError, DataError, Interrupted, TrainingError
from sublayer.evaluation.items import ITEMS
from sublayer.runs.session import prepare_data
from sublayer.study import budget
from sublayer.study.arms import expand
from sublayer.study.budget import PROGRAM_BYTES, size_arm
from sublayer.study.definition import Options, Study, ask
from sublayer.study.jobs import computing, loop
from sublayer.study.jobs import run as of_run
from sublayer.study.jobs.company import company
from sublayer.study.jobs.files import DONE, JobFiles, JobStatus, end_of, installed_versions
from sublayer.study.jobs.loop import MOST_TRIES, InTurn, PlainBoard, TerminalBoard
from sublayer.study.jobs.run import Job, Outcome, SharedData
from sublayer.system.processes import Forked, ForkServer
from sublayer.training.log import Status
from tests.stopping import stopped_at
from tests.study.studies import FAILING, FFN, copied, read_results, same_files, settings_of, values

START = ForkServer.start


def test_a_job_and_a_status_are_read_as_they_were_written(tmp_path):
    loaded = load_recipe("multi30k-tiny", ["train.threads=3", "data.path=/é\n.txt"])
    scored = load_recipe("gpt", ["train.seed=7", "data.path=/text.txt"]).recipe
    data = Mock(spec=Data, checksums={"test": "ab"})
    named = {"label": "ffn=gelu, seed 3", "path": Path("/runs/é"), "members": (Path("/a"),)}
    job = Job(**named, recipe=loaded.recipe, data=data, scored=scored)
    files = JobFiles(tmp_path / "job")
    files.write_job(job, job.checksums, "cuda:1", tmp_path / "stop")
    order = files.read_job()
    assert Job(data=data, **vars(order.spec)) == job
    known = {"test": "ab"}, "cuda:1", installed_versions(), tmp_path / "stop"
    assert (order.checksums, order.device, order.versions, order.stop_file) == known
    assert files.read_status() is None
    training = Status(3, 5, 1.25, 1000.5)
    status = JobStatus("here", "", training, ("a note",), ("a warning",), DONE)
    files.write_status(status)
    assert files.read_status() == status
    files.write_job(job, job.checksums, None)
    assert files.read_status() is None  # it was that of an earlier try


@pytest.mark.parametrize("error, kind, words", [
    (DataError("the text is gone"), DataError, "gelu, seed 2: the text is gone"),
    (Interrupted("it is saved"), Interrupted, "gelu, seed 2: it is saved"),
    (OSError(28, "No space left", "runs/a"), OSError, "[Errno 28] No space left: 'runs/a'"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ConfigError, "too little mem"),
    (KeyError("step"), TrainingError, "its process failed (KeyError: 'step')"),
])  # fmt: skip
def test_an_error_stays_of_its_kind_and_says_whose_it_is(error, kind, words):
    found = end_of(error).exception("gelu, seed 2")
    assert type(found) is kind and words in str(found)


def study_of(arms, rule) -> Study:
    return Study("gpt", "", "", rule, None, tuple(arms))


@pytest.mark.parametrize("jobs, settings, rule, message", [
    (2, "train.steps=5", "time", "--jobs 2 contradicts match = time"),
    (3, "train.minutes=1.5", "parameters", r"--jobs 3 .* train.minutes = 1.5"),
])  # fmt: skip
def test_what_is_measured_in_time_is_made_in_turn(jobs, settings, rule, message):
    given = (settings, "train.steps=5")
    arms, plain = (expand(load_recipe("gpt", [each]), [FFN]) for each in given)
    for refused in (arms, [plain[0], arms[1]]):  # also of a later arm
        with pytest.raises(ConfigError, match=message):
            ask(study_of(refused, rule), Options(jobs=jobs))
    ask(study_of(arms, rule), Options(jobs=1))
    ask(study_of(plain, "flops"), Options(jobs=2))


@pytest.mark.parametrize(("jobs", "threads"), [(2, 3), (20, 1)])
def test_threads_are_shared_and_never_none(jobs, threads, monkeypatch):
    monkeypatch.setattr(budget, "cores", lambda: 7)
    assert budget.shared_threads(jobs) == threads
    given = (["train.steps=5"], ["train.steps=5", "train.threads=9"])
    arms = [expand(load_recipe("gpt", each), [FFN])[0] for each in given]
    shared = budget.share_threads(arms, jobs)
    assert [arm.loaded.recipe.train.threads for arm in shared] == [threads, 9]
    measured = []

    def clock(arms):
        measured.extend(arm.recipe.train.threads for arm in arms)
        return [None] * len(arms)

    monkeypatch.setattr("sublayer.api.comparing._clock", lambda *_: clock)
    plan("gpt", given[0], vary=[FFN], jobs=jobs, measure=True)
    assert set(measured) == {threads}


def test_memory_is_that_of_the_largest_arm_times_the_runs(studies, settings, monkeypatch):
    recipe = load_recipe("gpt", settings_of(studies.text, "train.threads=2"))
    arms = expand(recipe, ["model.d_ff=32,1500000"])
    vocab_size = prepare_data(arms[0].loaded.recipe).tokenizer.vocab_size
    recipes = [(arm.loaded.recipe, vocab_size) for arm in arms]
    monkeypatch.setattr(computing, "cores", lambda: 8)
    monkeypatch.setattr(computing, "total_memory", lambda: 1 << 50)

    def described(jobs: int, n_runs: int = 40) -> str:
        where = {"device": "cpu", "folder": Path()}
        return computing.describe_share(recipes, n_runs=n_runs, jobs=jobs, **where)

    def gibibytes(*given: int) -> float:
        return float(re.search(r"about ([\d.]+) GiB of memory together", described(*given))[1])

    program = PROGRAM_BYTES / (1 << 30)
    # 24 million parameters, their gradients and two states of each are 0.36 GiB, copies that are
    # saved 0.27, the program 0.39; beside them is what a pass keeps of 32 tokens: of each 1.5
    # million hidden units are 0.18, as they are, activated, and as two gradients.
    each = gibibytes(1) - program
    assert 1.02 + 4 * 0.18 < each < 1.02 + 5 * 0.18
    assert gibibytes(4) == pytest.approx(4 * each + program, rel=0.01)
    assert gibibytes(30, 4) == gibibytes(4)
    assert described(4).startswith("40 runs, 4 at a time with 2 threads each; about ")
    assert "cores" not in described(4)
    assert described(5).endswith("; 5 x 2 threads are more than 8 cores and wait for each other")
    for held, jobs, message in (
        (1, 2, "and .* has 1 GiB: leave it out"), (5, 9, r"and .* has 5 .*: give --jobs [23]"),
    ):  # fmt: skip
        monkeypatch.setattr(computing, "total_memory", lambda held=held: held << 30)
        with pytest.raises(ConfigError, match=rf"--jobs {jobs} needs .*, {message}"):
            described(jobs)
    described(2)


def test_one_that_cannot_take_steps_is_an_error(capfd):
    arm, _ = expand(load_recipe("gpt", settings_of(Path("river.txt"))), [FFN])
    impossible = replace(size_arm(arm, 256), vocab_size=0)
    with pytest.raises(ConfigError, match="one of 2 processes .* ended, .* fewer --jobs"):
        with company(impossible, 1, "cpu"):
            raise AssertionError("it has begun")


def test_runs_of_arms_alternate_seed_by_seed(settings, capsys):
    short = [each for each in settings if "steps" not in each]
    compare("gpt", [*short, "train.steps=2"], vary=[FFN], match="time", seeds=3)
    shown = capsys.readouterr().err
    begun = re.findall(r"^\[\d+/\d+[^]]*\] ffn=(\w+), seed (\d): ", shown, flags=re.MULTILINE)
    assert " ".join(arm[0] + seed for arm, seed in dict.fromkeys(begun)) == "g0 s0 s1 g1 g2 s2"


def running(board, clock) -> None:
    for label in ("post-norm, seed 1", "gelu, seed 2", "relu, seed 3"):
        board.begin(label)
    board.finish("post-norm, seed 1", "valid loss 1.4")
    for step in (1, 101):
        board.update("gelu, seed 2", Status(step, 400, loss=1.5, tokens_per_s=1000.0))
        clock.return_value += 3.0 if step == 1 else 0.0
    for label in ("relu, seed 3", "relu, seed 4"):  # of one warning one line
        board.warn(label, "a document is long")


def test_a_pipe_has_a_line_for_each_run_and_one_where_none_ends_for_long():
    clock, stream = Mock(return_value=100.0), io.StringIO()
    board = PlainBoard(4, stream, clock)
    running(board, clock)
    board.tick()
    clock.return_value += 50.0
    for _ in range(2):
        board.tick()
    board.stage("relu, seed 3", "reading the text")
    board.drop("gelu, seed 2")
    clock.return_value += 100.0
    board.tick()
    assert stream.getvalue().splitlines() == [
        "[1/4] post-norm, seed 1: valid loss 1.4, after 0:00",
        "relu, seed 3: a document is long",
        "[1/4, about 9:37 to go] running gelu, seed 2 (step 101/400, loss 1.5000); "
        "relu, seed 3 (starting)",
        "[1/4, about 30:18 to go] running relu, seed 3 (reading the text)",
    ]


def test_a_terminal_has_a_bar_for_each_run_that_is_made(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    clock, stream = Mock(return_value=100.0), io.StringIO()
    board = TerminalBoard(4, stream, clock)
    running(board, clock)
    with board:
        pass
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    bars = {line.strip().split("  ")[0]: line for line in shown.splitlines()}
    assert "1/4, about 0:33 to go" in bars["all runs"] and "starting" in bars["relu, seed 3"]
    assert "step 101/400, loss 1.5000, 0:09 left" in bars["gelu, seed 2"]
    lines = {"relu, seed 3: a document is long", "post-norm, seed 1: valid loss 1.4, after 0:00"}
    assert bars.keys() >= lines and "post-norm, seed 1" not in bars


def test_what_is_left_is_estimated_from_the_work_that_was_done_now():
    clock = Mock(return_value=100.0)
    board = PlainBoard(10, io.StringIO(), clock)
    for _ in range(2):
        board.find()
    for label in ("lost", "made"):
        board.begin(label)
        board.update(label, Status(1, 200, loss=1.5, tokens_per_s=1000.0))
    assert board.describe() == "2/10"
    clock.return_value += 60.0
    board.finish("made", "valid loss 1.4")
    board.update("lost", Status(101, 200, loss=1.5, tokens_per_s=1000.0))
    # 6.5 runs at 40 seconds each.
    assert board.describe() == "3/10, about 4:20 to go"
    board.drop("lost")
    assert board.describe() == "3/10, about 4:40 to go"


@pytest.mark.parametrize("stop", [Interrupted("saved; --resume resumes"), KeyboardInterrupt()])
def test_a_stopped_study_says_what_is_done_and_a_warning_once(stop, tmp_path, monkeypatch, capsys):
    def finish(job: Job, progress, **_) -> Outcome:
        if job.label == "d":
            raise stop
        progress.warn("a document is long")
        return Outcome(job.path)

    class Named(SimpleNamespace):
        def is_finished(self):
            return self.path.exists()

        def describe_end(self, outcome):
            return "valid loss 1.5"

    monkeypatch.setattr(loop, "finish_run", finish)
    (tmp_path / "a").mkdir()  # which is done
    said = "interrupted with 3 of 5 runs done, and the others saved; the same command resumes"
    with pytest.raises(Interrupted, match=f"^{said}$"):
        InTurn(5, None)([Named(label=name, path=tmp_path / name) for name in "abcde"])
    ends = [f"[{n}/5] {name}: valid loss 1.5, after 0:00" for n, name in ((2, "b"), (3, "c"))]
    warned = ["a document is long", "b: a document is long"]
    assert capsys.readouterr().err.splitlines() == [*warned, *ends]


def test_of_prepared_data_those_asked_for_last_are_kept(monkeypatch):
    monkeypatch.setattr(of_run, "prepare_data", lambda *_: object())
    shared = SharedData(most=2)
    recipes = [load_recipe("gpt", [f"data.context={n}"]).recipe for n in (16, 32, 48)]
    first, second = map(shared.of, recipes[:2])
    assert shared.of(recipes[0]) is first
    third = shared.of(recipes[2])
    assert (shared.of(recipes[2]), shared.of(recipes[0])) == (third, first)
    assert shared.of(recipes[1]) is not second


@pytest.fixture
def started(monkeypatch):
    """Each process that is started, by a function that a test may replace."""
    made = Mock(side_effect=START)
    monkeypatch.setattr(ForkServer, "start", lambda *given: made(*given))
    return made


def test_runs_at_a_time_give_what_runs_in_turn_give(studies, settings, capfd, started):
    in_turn, known = studies.failed(), read_results(studies.failed())
    out = copied(in_turn, "at-a-time")
    for gone in ("0-lr=1e-3/seed-0", "0-lr=1e-3/seed-2", "2-lr=1e6/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(out / "arms" / gone)
    asked = {"vary": [FAILING], "seeds": 3, "out": out}
    capfd.readouterr()
    found = compare("gpt", settings, **asked, jobs=2).to_dict()
    said = capfd.readouterr().err.splitlines()
    assert started.call_count == 4
    assert (values(found), found["failures"]) == (values(known), known["failures"])
    for name in ("model.safetensors", "test.json", ITEMS):
        assert same_files(name, in_turn, out), name
    ended = [line for line in said if line.startswith("[") and "] running " not in line]
    assert [line[:4] for line in ended] == [f"[{n}/9" for n in range(6, 10)]
    assert any("Up to 2 runs were trained in parallel" in note for note in found["notes"])
    assert "--jobs 2" in found["reproduction"]["command"]
    assert compare("gpt", settings, **asked).to_dict()["notes"] == found["notes"]


def stopped(number: int, *words: str) -> subprocess.CompletedProcess[str]:
    # Its children have its standard error, so that this has no end before they have theirs.
    words = ("compare", "gpt", *words, "--match", "none", "--seeds", "1", "--jobs", "2")
    command = stopped_at([("open", "test.json")], number, *words)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def killed(*given) -> subprocess.Popen | Forked:
    process = START(*given)
    while process.pid is None:
        process.poll()
    process.kill()
    return process


def test_a_run_whose_process_is_killed_is_tried_again(studies, settings, started, capfd):
    known = copied(studies.failed(), "known")
    out = copied(known, "killed")
    shutil.rmtree(out / "arms/0-lr=1e-3/seed-1")
    first = iter([killed])
    started.side_effect = lambda *given: next(first, START)(*given)
    found = compare("gpt", settings, vary=[FAILING], seeds=3, out=out, jobs=2).to_dict()
    assert values(found) == values(read_results(known)) and started.call_count == 2
    assert same_files("model.safetensors", known, out)
    line = r"lr=1e-3, seed 1: its process was ended by signal 9, perhaps .* memory; tried again"
    assert re.search(line, capfd.readouterr().err)


def test_a_run_that_is_killed_every_time_is_given_up_and_the_others_made(settings, started):
    started.side_effect = killed
    told = rf"0 of 2 runs done, and 2 runs lost {MOST_TRIES} times in a row .* fewer jobs .*; "
    with pytest.raises(TrainingError, match=rf"{told}lr=[12]e-3, seed 0 first: .* signal 9"):
        compare("gpt", settings, vary=["optimizer.lr=1e-3,2e-3"], seeds=1, jobs=2)
    assert started.call_count == 2 * MOST_TRIES


def test_interrupted_runs_save_and_end_as_if_they_never_had_been(settings):
    settings = [each for each in settings if "steps" not in each] + ["train.evaluate_steps=200"]
    words = [*settings, "--vary", "train.steps=3,200,4"]
    ended = stopped(signal.SIGTERM, *words, "--out", "stopped", "--json")
    assert ended.returncode == INTERRUPTED, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert re.match(r"interrupted with [12] of 3 runs done, and the others saved", last)
    assert "Traceback" not in ended.stderr
    asked = {"vary": ["train.steps=3,200,4"], "match": "none", "seeds": 1}
    resumed = compare("gpt", settings, **asked, out="stopped", jobs=2).to_dict()
    assert values(resumed) == values(compare("gpt", settings, **asked, out="unbroken").to_dict())


@pytest.mark.all
def test_no_run_outlasts_its_parent_nor_one_that_cannot_be_made(settings):
    settings = [each for each in settings if "steps" not in each]
    varied = "train.steps=3,1000000,4"
    ended = stopped(signal.SIGKILL, *settings, "--vary", varied, "--out", "killed")
    assert ended.returncode == -signal.SIGKILL
    assert "Traceback" not in ended.stderr
    done = Path("killed/arms/0-steps=3/seed-0/record.json")
    assert list(Path("killed").rglob("record.json")) == [done]
    damaged = Path("killed/arms/2-steps=4/seed-0")
    damaged.mkdir(parents=True)
    (damaged / "record.json").write_text("{")
    asked = {"vary": [varied], "match": "none", "seeds": 1, "out": "killed", "jobs": 2}
    with pytest.raises(CheckpointError, match=r"steps=4, seed 0: .*record.json is not JSON"):
        compare("gpt", settings, **asked)
    assert sorted(Path("killed").rglob("record.json")) == [done, damaged / "record.json"]
