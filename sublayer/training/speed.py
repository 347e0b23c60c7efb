"""Measured speed: seconds of steps and evaluations, and the faster precision of products.

Measurements are cached by the conditions of this machine, with their time.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor
from torch.nn.functional import gelu

from sublayer.config.resolve import format_step
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import write_file
from sublayer.model.kernels.products import has_bfloat16_units, linear, product
from sublayer.numbers import count
from sublayer.system.machine import cores, processor, wait_for

_N_WARM_UP = 3
_N_TIMED = 20
_LEAST_USED, _MOST_USED = 0.6, 1.5
"""Range of the share of a run's minutes within which its use of time is not reported."""
_NOW_S = 1.0
"""Age in seconds below which a measurement is from now."""
_UNITS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
"""Units of time in seconds, the longest first."""
_GAIN = 1.1
"""Minimum speed relative to float32 at which bfloat16 is chosen."""
_HOPELESS = 0.2
"""Threshold between small products with emulated bfloat16 (gain 0.05) and native (0.4)."""
_LIMIT_S = 0.15
"""Seconds within which measurements end, after a first round of each."""
_SIZES = (16, 32, 64, 128)
"""Widths of the square products that compare precisions, each with eight times as much work."""
_LARGER_SIZES = (256, 512, 1024)
"""Further widths to measure the speed of a single precision."""
_REPEATS = 3
_QUICK_S = 0.01
"""Seconds beyond which a measurement is not repeated."""
_NARROWEST, _WIDEST = 32, 512
"""Range of the measured layer's width, which is the model's, rounded to a power of two."""
_OUTPUTS = 1 << 16
"""Size of the measured layer's input, small enough for slow processors."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Pace:
    """Seconds per step and evaluation of a run."""

    step_s: float
    """Median seconds of a few steps."""
    evaluation_s: float
    age_s: float = 0.0
    """Seconds since the measurement."""

    def describe_length(self, minutes: float, steps: int) -> str:
        """Describe the length of a run derived from minutes, and the measurement used.

        As in ``10 minutes: 1,200 steps of`` with the step time and the measurement's age in one
        unit, rounded down: ``3 hours ago``, ``now``.
        """
        age = "now"
        if self.age_s >= _NOW_S:
            unit = next(unit for unit, length in _UNITS.items() if self.age_s >= length)
            age = f"{count(int(self.age_s / _UNITS[unit]), unit)} ago"
        return (
            f"{count(minutes, 'minute', 'g')}: {count(steps, 'step')} of "
            f"{format_step(self.step_s)}, measured {age}"
        )


def median_step(
    take_step: Callable[[int], object],
    *,
    budget_s: float,
    device: torch.device,
    clock: Clock = time.perf_counter,
    most: int = _N_WARM_UP + _N_TIMED,
    agree: Callable[[bool], bool] = bool,
) -> float:
    """Measure the median seconds of a step, over at most ``most`` steps.

    At least one step is taken, further ones only if they end within ``budget_s``. The first steps,
    which allocate memory, count only if there are few steps.

    ``take_step`` is called with the number of the step, from 0. ``agree`` makes processes stop
    together: its argument is whether this process has time left, its result whether all have.
    """
    seconds: list[float] = []
    ends = clock() + budget_s
    while not seconds or (len(seconds) < most and agree(clock() + seconds[-1] <= ends)):
        work = partial(take_step, len(seconds))
        seconds.append(timed(work, device=device, clock=clock))
    n_warm_up = min(_N_WARM_UP, len(seconds) // 2)
    return statistics.median(seconds[n_warm_up:])


def timed(
    work: Callable[[], object], *, device: torch.device, clock: Clock = time.perf_counter
) -> float:
    """Measure the seconds of work, including its completion on ``device``."""
    begun = clock()
    work()
    wait_for(device)
    return clock() - begun


def describe_use(minutes: float, seconds: float) -> str | None:
    """Describe a run's deviation from its minutes; None if it is small.

    ``seconds`` is the time taken; 0.6 to 1.5 times the minutes is a small deviation.
    """
    share = seconds / (60.0 * minutes)
    if _LEAST_USED <= share <= _MOST_USED:
        return None
    how = "faster" if share < 1 else "slower"
    return (
        f"the run took {seconds / 60:.2g} of the requested {count(minutes, 'minute', 'g')} "
        f"({share:.0%}): steps were {how} than when their pace was measured"
    )


@dataclass(frozen=True)
class Clocks:
    """Clocks for measuring and for limiting, which both return seconds from any origin."""

    used: Callable[[], float]
    """Time that this thread has used, if there is such a clock, which excludes other programs."""
    passed: Callable[[], float] = time.perf_counter
    """Time on the wall clock."""


def own_clocks() -> Clocks:
    """Return this thread's clock if its resolution suffices, else the wall clock.

    The resolution must be below a tenth of a millisecond.
    """
    if not hasattr(time, "thread_time"):
        return Clocks(time.perf_counter)
    is_fine = time.get_clock_info("thread_time").resolution < 1e-4
    return Clocks(time.thread_time if is_fine else time.perf_counter)


def fastest_precision(device: torch.device, d_model: int) -> Literal["float32", "bfloat16"]:
    """Return the faster precision of products of about this width, casts included.

    On a CPU it is measured once, briefly, and cached for later runs; bfloat16 is chosen if it is
    faster by at least a tenth. A GPU is queried instead of measured.
    """
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    if device.type != "cpu":
        return "float32"
    power_of_two = 1 << (d_model - 1).bit_length()
    width = min(_WIDEST, max(_NARROWEST, power_of_two))
    key = f"what bfloat16 gains at width {width}"
    measurement = recall(key, 1)
    if measurement is None:
        gain = bfloat16_gain(width, own_clocks())
        measurement = keep(key, [gain])
    return "bfloat16" if measurement.values[0] >= _GAIN else "float32"


def bfloat16_gain(width: int, clocks: Clocks) -> float:
    """Measure the speed of a layer of this width in bfloat16 relative to float32.

    The result has two decimals and is above 1 if bfloat16 is faster; it is 0 if small products are
    hopelessly slow. It is measured on one thread, independently of other programs, since the gain
    is the same for any number of threads. PyTorch's number of threads is restored.
    """
    ends = clocks.passed() + _LIMIT_S
    generator = torch.Generator().manual_seed(0)
    with _one_thread():
        gain = 1.0
        for size in _SIZES:
            a = torch.randn(size, size, generator=generator)
            b = torch.randn(size, size, generator=generator)
            multiply = partial(torch.mm, a, b)
            multiply_low = partial(torch.mm, a.bfloat16(), b.bfloat16())
            slow_s = _fastest(multiply, clocks.used)
            fast_s = _fastest(multiply_low, clocks.used)
            gain = slow_s / fast_s
            next_s = 8 * _REPEATS * (slow_s + fast_s)
            if clocks.passed() + next_s > ends:
                break
        least = _HOPELESS if has_bfloat16_units() else 1.0
        if gain < least:
            return 0.0
        generator.manual_seed(0)
        x = torch.randn(_OUTPUTS // width, width, generator=generator)
        weight = torch.randn(4 * width, width, generator=generator, requires_grad=True)

        def forward_and_backward(*, is_low: bool) -> float:
            begun = clocks.used()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_low):
                gelu(linear(x, weight)).float().sum().backward()  # type: ignore[no-untyped-call]
            return max(clocks.used() - begun, 1e-9)

        slow: list[float] = []
        fast: list[float] = []
        # The fastest round counts, of at least two if time allows, since the first allocates.
        while not slow or clocks.passed() + slow[-1] + fast[-1] < ends:
            slow.append(forward_and_backward(is_low=False))
            fast.append(forward_and_backward(is_low=True))
        return round(min(slow) / min(fast), 2)


def product_speed(
    device: torch.device, precision: str, threads: int, clocks: Clocks | None = None
) -> float:
    """Measure the operations per second of matrix products in a precision, over all threads.

    A multiply-add is two operations. Products grow as long as they are fast, and the fastest
    counts. On a CPU one thread is measured, and the others are assumed equal; elsewhere ``threads``
    is ignored.
    """
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if device.type == "cpu":
        with _one_thread():
            return threads * _product_speed(device, dtype, clocks or own_clocks())
    return _product_speed(device, dtype, clocks or Clocks(time.perf_counter))


def _product_speed(device: torch.device, dtype: torch.dtype, clocks: Clocks) -> float:
    ends = clocks.passed() + _LIMIT_S
    speed = 0.0
    for width in (*_SIZES, *_LARGER_SIZES):
        a = torch.ones(width, width, device=device, dtype=dtype)
        b = torch.ones_like(a)
        seconds = _fastest(partial(_multiply, a, b), clocks.used)
        n_operations = 2 * width**3
        speed = max(speed, n_operations / seconds)
        next_s = 8 * _REPEATS * seconds
        if clocks.passed() + next_s > ends:
            break
    return speed


def _multiply(a: Tensor, b: Tensor) -> None:
    product(a, b)
    wait_for(a.device)


def _fastest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    fastest = float("inf")
    for _ in range(_REPEATS):
        begun = clock()
        work()
        seconds = max(clock() - begun, 1e-9)
        fastest = min(fastest, seconds)
        if fastest > _QUICK_S:
            break
    return fastest


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


_SETTINGS = (
    "ATEN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_",
    "TORCH_",
)
"""Prefixes and names of variables that affect the speed of PyTorch, oneDNN, MKL, OpenMP, libc."""
_NAMED = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)
_WITHOUT_EFFECT = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables of OpenMP without effect on speed, which the import of scikit-learn sets."""
_MOST = 1000
"""Maximum number of measurements kept, beyond which the oldest are dropped."""

_Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Measurement:
    """Measured values, in the unit of those passed to ``keep``, and their time."""

    values: tuple[_Positive, ...]
    at: _Positive
    """Seconds since 1970."""


def recall(key: str, n_values: int) -> Measurement | None:
    """Return the cached measurement of ``key``, with ``n_values`` values, or None.

    It is valid only for the same processor, cores, PyTorch release and environment variables. None
    if it is missing, unreadable or has another number of values.
    """
    cached = _read(_path()).get(_full(key))
    return None if cached is None or len(cached.values) != n_values else cached


def keep(key: str, values: Sequence[float], clock: Clock = time.time) -> Measurement:
    """Cache measured values, if the cache can be written; return them with the time.

    ``clock`` returns seconds since 1970. Beyond 1,000 measurements the oldest are dropped.
    """
    taken = Measurement(tuple(map(float, values)), clock())
    path = _path()
    others = {name: other for name, other in _read(path).items() if name != _full(key)}
    newest = sorted(others, key=lambda name: others[name].at)[1 - _MOST :]
    content = {name: asdict(others[name]) for name in newest} | {_full(key): asdict(taken)}
    # A measurement that cannot be cached still serves this process.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(content, indent=1) + "\n")
    return taken


def _path() -> Path:
    return cache_folder() / "measured.json"


def _full(key: str) -> str:
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if (name.startswith(_SETTINGS) and name not in _WITHOUT_EFFECT) or name in _NAMED
    ]
    machine = [f"{processor()} x{cores()}", f"torch {torch.__version__}"]
    return "; ".join([*machine, *settings, key])


def _read(path: Path) -> dict[str, Measurement]:
    """Read the valid measurements in a file."""
    content: dict[str, Any] = {}
    with suppress(OSError, DataError):
        content = read_json_object(path, DataError)
    adapter = TypeAdapter(Measurement)
    measurements = {}
    for name, entry in content.items():
        with suppress(ValidationError):
            measurements[name] = adapter.validate_json(json.dumps(entry), strict=True)
    return measurements
