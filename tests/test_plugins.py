"""Rows of the user's own: right and wrong plugins, and what runs and studies keep of them."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import sublayer as package
from sublayer.api import checking
from sublayer.api.recipes import json_schema
from sublayer.config.load import load_recipe
from sublayer.config.plugins import PLUGINS, load_plugins
from sublayer.config.recipe import TABLES
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.estimates import count_parameters
from sublayer.model.transformer import build
from sublayer.study.jobs.files import JobFiles
from sublayer.study.jobs.run import Job, SharedData
from tests.breadth import rows

EXAMPLE = Path(__file__).parents[1] / "examples" / "mish.py"
HEAD = """
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from sublayer.model.context import Keys
from sublayer.model.kernels.attention import hide
from sublayer.model.layers import Linear
from sublayer.rows import Activation, Norm, Optimizer, Positions, Sublayer
from sublayer.training.optimizers import Optimizer as Undecorated
"""
RIGHT = {
    "mish": EXAMPLE.read_text(),
    "bent": """
class Bent(Activation):
    name, is_gated, n_parameters = "bent", True, 1
    roles, initial = {"slope": "gain"}, {"slope": 0.5}

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.empty(()))

    def forward(self, x):
        return (self.slope * x).tanh()
""",
    "log": """
class Log(Positions):
    name, in_attention, roles = "log", "bias", {"slope": "gain"}

    def __init__(self, config, shape):
        super().__init__(config, shape)
        self.slope = nn.Parameter(torch.empty(config.n_heads))

    @staticmethod
    def n_parameters(config, n_layers, width):
        return config.n_heads

    def score_bias(self, queries, keys, dtype):
        distance = (queries[..., :, None] - keys[..., None, :]).abs().to(dtype)
        distance = distance if distance.dim() == 3 else distance[None]
        return -self.slope[:, None, None] * distance.log1p()[:, None]
""",
    "mean-size": """
class MeanSize(Norm):
    name, roles = "mean-size", {"weight": "gain"}

    def __init__(self, d_model, *, eps, affine):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.eps, self.own = eps, __import__("random").random()

    def forward(self, x):
        normed = x / (x.abs().mean(-1, keepdim=True) + self.eps)
        return normed if self.weight is None else normed * self.weight

    @staticmethod
    def n_parameters(width):
        return width
""",
    "map": """
class Map(Sublayer):
    name = "map"

    def __init__(self, config):
        super().__init__()
        self.map = Linear(config.d_model, config.d_model, bias=False, ends_branch=True)

    def forward(self, x, context):
        return self.map(x)

    @staticmethod
    def n_parameters(config):
        return config.d_model**2

    @staticmethod
    def n_products(config, n_tokens):
        return n_tokens * config.d_model**2
""",
    "average": """
class Average(Sublayer):
    name, attends_to = "average", "itself"

    def __init__(self, config):
        super().__init__()
        width, self.heads = config.n_heads * config.d_head, (config.n_heads, config.d_head)
        self.value = Linear(config.d_model, width, bias=False)
        self.output = Linear(width, config.d_model, bias=False, ends_branch=True)

    def forward(self, x, context):
        v = self.value(x).unflatten(-1, self.heads).transpose(1, 2)
        if context.key_values is not None:
            _, v = context.key_values.append(v, v)
        scores = hide(v.new_zeros(1, 1, x.shape[1], v.shape[2]), context.layout.keys)
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    @staticmethod
    def n_parameters(config):
        return 2 * config.d_model * config.n_heads * config.d_head

    @staticmethod
    def n_products(config, n_tokens):
        width = config.n_heads * config.d_head
        return n_tokens * width * (2 * config.d_model + n_tokens // 2)
""",
    "sign": """
class Sign(Optimizer):
    \"\"\"Signs of the momentum.\"\"\"

    kind: Literal["sign"] = "sign"
    beta: float = 0.9

    def state_axes(self, shape, role):
        return {"momentum": tuple(range(len(shape)))}

    def build(self, groups, division):
        return _Sign(groups, {"lr": self.lr, "beta": self.beta})


class _Sign(Undecorated):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                momentum = state.setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - group["beta"])
                weight.sub_(momentum.sign(), alpha=group["lr"])
""",
}
"""A right plugin of each kind, two of some."""
WRONG = [
    ("counted = built", "map", "return config.d_model**2", "return config.d_model"),
    ("counted = built", "map", "n_tokens * config", "2 * n_tokens * config"),
    ("counted = built", "sign", 'return {"momentum"', 'return {"moment"'),
    ("gradients", "bent", "(self.slope * x).tanh()", "(self.slope * x).detach().tanh() + x"),
    ("no leak from the future", "average", "layout.keys)", "layout.keys).clamp(min=0)"),
    ("cached = uncached", "average", "_, v = context", "context"),
    ("cached = uncached", "log", "distance.log1p()", "(keys[..., None, :] ** 2 + 0 * distance)"),
    ("padding changes nothing", "average", "context.layout.keys", "Keys(True, None)"),
    ("saved = loaded", "mean-size", "x / (x.abs()", "self.own * x / (x.abs()"),
    ("same bits resumed", "sign", "self.state[weight]", "self.defaults.setdefault(weight, {})"),
    ("matched", "map", "d_model, config.d_model, bias", "d_model, 99 * config.d_model, bias"),
]  # fmt: skip
"""A check that fails, perhaps with others, where a part of a right plugin is replaced."""
REFUSED = {
    "": "it has no class that derives from a base of sublayer.rows",
    "1 / 0": "line 13, in <module>: ZeroDivisionError: division by zero",
    "def f(:": "SyntaxError: invalid syntax",
    "raise SystemExit(3)": "line 13, in <module>: SystemExit: 3",
    "class A(Activation):\n    name = 'a'": "A lacks the method forward",
    "class A(Norm):\n    name = 'a'": "A lacks the method __init__",
    "class A(Optimizer):\n    kind: Literal['a'] = 'a'": "A lacks the method state_axes",
    "class A(Positions):\n    name, in_attention = 'a', 'bias'": "A lacks the method score_bias",
    "class A(Activation):\n    forward = F.relu": "A.name = None must be a text of lower-case",
    "class A(Activation):\n    name, forward = 'A:b', F.relu": "A.name = 'A:b' must be a text of",
    "class A(Activation):\n    name, forward = 'gelu', F.relu":
        "model.ffn = gelu is a row of sublayer itself: rename yours",
    "class A(Activation):\n    name, forward = 'a', lambda self, x: x.nothing":
        "line 14, in <lambda>: AttributeError: 'Tensor' object has no attribute 'nothing'",
    RIGHT["map"].replace("return config.d_model**2", "return 1"):
        "Map.n_parameters is wrong: a small model has",
}  # fmt: skip
TINY = {"model.n_layers": 1, "model.d_model": 16, "model.n_heads": 2, "data.context": 16}
TINY |= {"data.tokenizer": "bytes", "train.steps": 2, "train.batch_sequences": 2}
TINY |= {"train.precision": "float32", "train.threads": 1, "train.evaluate_tokens": 64}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a plugin into the working directory, and return its file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("the reed by the river bends, the oak falls. " * 60)

    def write(name, *changes):
        source = RIGHT.get(name, "")
        for old, new in changes:
            assert source.count(old) == 1 or not old
            source = source.replace(old, new) if old else new
        path = tmp_path / f"{name}.py"
        path.write_text(
            source if source.startswith('"""') else f"{HEAD.lstrip()}\n{source.lstrip()}"
        )
        return path

    return write


@pytest.mark.parametrize("name", rows(RIGHT, 4))
def test_all_holds_for_a_right_plugin(name, write):
    found = package.check(write(name))
    assert found["holds"], str(found)
    assert found.exit_code == 0
    checks = {check for row in found["rows"].values() for check, it in row.items() if it == "holds"}
    assert len(checks) == (2 if name == "sign" else 8)


@pytest.mark.parametrize("check, name, old, new", WRONG)
def test_a_wrong_plugin_fails_the_check_of_its_fault(check, name, old, new, write):
    [plugin] = load_plugins([write(name, (old, new))], tries=False)
    [row] = plugin.rows.values()
    # Runs take long.
    tried = [each for each in checking._CHECKS if each in (check, *list(checking._CHECKS)[:6])]
    results = {each: checking._try(each, row, plugin) for each in tried}
    assert results[check] not in ("holds", "-"), results
    assert all("\n" not in result for result in results.values())


@pytest.mark.parametrize("source, words", REFUSED.items(), ids=REFUSED.values())
def test_a_plugin_that_cannot_be_used_is_refused_by_name_and_leaves_nothing(
    source, words, write, sublayer
):
    before = {(table, kind) for table, kinds in TABLES.items() for kind in kinds}
    path = write("wrong", ("", source))
    refusal = sublayer("train", "gpt", "data.path=nothing.txt", "--plugin", path).refusal()
    assert refusal.startswith(f"error: plugin wrong: {words}"), refusal
    assert {(table, kind) for table, kinds in TABLES.items() for kind in kinds} == before
    assert not PLUGINS and "wrong" not in str(json_schema())


def test_names_of_two_plugins_differ_and_missing_ones_are_named(write, tmp_path):
    load_plugins([write("map")])
    shutil.copy("map.py", "other.py")
    with pytest.raises(ConfigError, match=r"^plugin other: model.block = map is a row of map too"):
        load_plugins(["other.py"])
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "map.py").write_text("")
    with pytest.raises(ConfigError, match="have the same name"):
        load_plugins(["map.py", "below/map.py"])
    with pytest.raises(ConfigError, match=r"gone.py is not there: name a Python file"):
        load_plugins(["gone.py"])
    with pytest.raises(ConfigError, match=r"gone is neither a .py file nor an installed package"):
        load_plugins(["gone"])


def test_a_plugin_adds_to_fields_schema_and_counts(write, sublayer):
    path = write("mish")
    settings = [f"{key}={value}" for key, value in TINY.items()]
    refused = sublayer("plan", "gpt", *settings, "model.ffn=mish").refusal()
    assert "model.ffn = 'mish' is not one of relu," in refused
    planned = sublayer("plan", "gpt", *settings, "--vary", "model.ffn=gelu,mish", "--plugin", path)
    assert planned.code == 0, planned.err
    assert "ffn=mish" in planned.out
    names = [str(write(name)) for name in ("average", "map", "log", "mean-size")]
    block = 'model.block=["attention","average","map","ffn"]'
    ours = ["model.positions=log", "model.norm=mean-size", "train.precision=bfloat16"]
    given = [word for name in names for word in ("--plugin", name)]
    rows = [each for each in settings if not each.startswith("train.precision")]
    assert sublayer("plan", "gpt", *rows, block, *ours, *given).code == 0
    assert "mishglu" in json_schema()["$defs"]["ModelConfig"]["properties"]["ffn"]["enum"]
    with pytest.raises(ConfigError, match="no effect with model.ffn = 'mish'"):
        load_recipe("gpt", {"model.ffn": "mish", "model.gelu": "exact"})
    load_plugins([write("sign")])
    recipe = load_recipe("gpt", {"optimizer.kind": "sign", "optimizer.beta": 0.5}).recipe
    assert recipe.model_dump()["optimizer"]["beta"] == 0.5
    with pytest.raises(ConfigError, match=r"optimizer.beta = 'x' is not a number"):
        load_recipe("gpt", {"optimizer.kind": "sign", "optimizer.beta": "x"})


def test_rows_of_plugins_combine_with_the_fields_of_their_kinds(write):
    load_plugins([write("average"), write("log")])
    fields = {"block": ["attention", "average", "ffn"], "value_residual": "learned"}
    fields |= {"positions": "log", "position_pattern": "PN", "n_layers": 2}
    recipe = load_recipe("gpt", {f"model.{name}": value for name, value in fields.items()}).recipe
    model = build(resolve_model(recipe.model, vocab_size=13, context=16), seed=0)
    n_built = sum(parameter.numel() for parameter in model.parameters())
    assert n_built == count_parameters(model.config).total
    assert sum(name.endswith("first_share") for name, _ in model.named_parameters()) == 1
    with pytest.raises(ConfigError, match="value_residual = 'fixed' has no effect"):
        load_recipe("gpt", {"model.block": ["average", "ffn"], "model.value_residual": "fixed"})


def test_a_plugin_without_effect_is_refused_or_noted(write, sublayer):
    mish, sign = write("mish"), write("sign")
    given = [f"{key}={value}" for key, value in {**TINY, "data.path": "text.txt"}.items()]
    plugins = ["--plugin", mish, "--plugin", sign]
    vary = ["--vary", "model.ffn=gelu,mish"]
    for words in (["train", "gpt"], ["plan", "gpt", *vary], ["compare", "gpt", *vary]):
        used = [] if vary[0] in words else ["model.ffn=mish"]
        refusal = sublayer(*words, *given, *used, *plugins).refusal()
        assert "sign.py has no effect without optimizer.kind = sign: give the setting" in refusal
    fields = [sublayer("fields", name, *plugins) for name in ("ffn", "optimizer.beta")]
    assert "mishglu" in fields[0].out and "default 0.9" in fields[1].out
    assert not any("effect" in each.err for each in fields)
    assert "mish.py has had no effect" in sublayer("runs", "--plugin", mish).err


def test_runs_keep_their_plugins_and_are_refused_without_them_or_with_others(write, sublayer):
    mish, sign = write("mish"), write("sign")
    sign.write_text(
        f"{sign.read_text()}\nwith open('executed', 'a') as file:\n    file.write('x')\n"
    )
    settings = {**TINY, "data.path": "text.txt", "model.ffn": "mish", "optimizer.kind": "sign"}
    run = package.train("gpt", settings, out="runs/a", plugins=[mish, sign])
    whole = run.load().state_dict()
    assert (Path("runs/a/plugins/mish.py").read_bytes(), Path("executed").read_text()) == (
        mish.read_bytes(), "x",
    )  # fmt: skip
    for plugin in [*PLUGINS.values()]:
        plugin.remove()
    named = r"uses the plugin mish, which is code and runs only if you name it: add"
    reads = ["generate runs/a --prompt a", "evaluate runs/a", "train runs/a --resume"]
    reads += ["export runs/a out", "train gpt init.run=runs/a data.path=text.txt", "recipes runs/a"]
    reads += ["compare runs/a runs/a", "finetune runs/a rte", "report runs/a", "plan runs/a"]
    for words in reads:
        refusal = sublayer(*words.split()).refusal()
        assert re.search(named, refusal) and "/mish.py" in refusal, (words, refusal)
    assert (
        "runs/a/model/mish.py"
        in sublayer("embed", "runs/a/model", "text.txt", "--out", "x.npy").err
    )
    assert Path("executed").read_text() == "x"
    mish.write_text(mish.read_text().replace("F.mish(x)", "F.silu(x)"))
    changed = sublayer("generate", "runs/a", "--prompt", "a", "--plugin", mish, "--plugin", sign)
    assert "uses another plugin mish (SHA-256 " in changed.refusal()
    kept = ("--plugin", "runs/a/plugins/mish.py", "--plugin", "runs/a/plugins/sign.py")
    text = sublayer("generate", "runs/a", "--prompt", "a", "--tokens", 3, *kept, "--json").found()
    assert len(text["texts"]) == 1
    assert sublayer("train", "runs/a", "--resume", "train.steps=3", *kept).code == 0
    loaded = package.load("runs/a/checkpoints/step-00000002", plugins=["runs/a/plugins/mish.py"])
    assert all(torch.equal(value, whole[name]) for name, value in loaded.state_dict().items())
    refused = sublayer("export", "runs/a", "out", *kept).refusal()
    assert "model.ffn" in refused
    assert "plugin mish" in sublayer("export", "runs/a", "out", "--to", "onnx", *kept).refusal()


def test_a_job_carries_its_plugins(write, tmp_path):
    load_plugins([write("mish")])
    recipe = load_recipe("gpt", {"model.ffn": "mish", "data.path": "text.txt"}).recipe
    job = Job(label="a", path=tmp_path / "run", recipe=recipe, scored=recipe, data=SharedData(1))
    files = JobFiles(tmp_path / "job")
    files.write_job(job, {}, None)
    Path("mish.py").write_text("raise SystemExit")
    PLUGINS["mish"].remove()
    assert files.read_job().spec.recipe.model.ffn == "mish"
    assert PLUGINS["mish"].path == tmp_path / "job" / "mish.py"


def test_an_installed_package_is_named_by_its_name(write, tmp_path, monkeypatch):
    write("map")
    Path("map.py").rename("map_rows.py")
    info = tmp_path / "my_maps-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-maps\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sublayer.rows]\nmap = map_rows\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="did you mean my-maps"):
        load_plugins(["my-map"])
    [plugin] = load_plugins(["my-maps"])
    assert list(plugin.rows) == [("model.block", "map")]
    recipe = load_recipe("gpt", {"model.block": ["attention", "map"]}).recipe
    assert recipe.model.block == ("attention", "map")


@pytest.mark.all
def test_a_comparison_of_a_row_runs_in_processes_and_resumes(write, sublayer):
    path = write("mish")
    settings = [f"{key}={value}" for key, value in {**TINY, "data.path": "text.txt"}.items()]
    options = ["--vary", "model.ffn=gelu,mish", "--seeds", 3, "--jobs", 2]
    words = ["compare", "gpt", *settings, *options]
    done = sublayer(*words, "--out", "runs/s", "--plugin", path)
    assert done.code == 0, done.err
    PLUGINS["mish"].remove()
    assert "model.ffn = 'mish' is not one of" in sublayer(*words, "--out", "runs/s").refusal()
    path.write_text(f"{path.read_text()}\n")
    assert "another plugin mish" in sublayer(*words, "--out", "runs/s", "--plugin", path).refusal()
