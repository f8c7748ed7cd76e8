"""Triton's measurements of times. On the simulator they say nothing, so each runs what it measures once."""

import sys
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

from triton import testing

# Scripts have imported these by name, so that their code is replaced and not their names.
_NAMES = ("do_bench", "do_bench_proton", "do_bench_cudagraph", "do_bench_cudagraph_proton")


def measure(call: Callable[[], Any], quantiles: Any, return_mode: str, grad_to_none: Any) -> Any:
    """The time of one call in milliseconds of the simulation, as Triton's functions return it."""
    for tensor in grad_to_none or ():
        tensor.grad = None
    start = time.perf_counter()
    call()
    elapsed = (time.perf_counter() - start) * 1e3
    return testing._summarize_statistics([elapsed], quantiles, return_mode)


def _do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean", **options):  # type: ignore
    from attune_sim import _bench

    return _bench.measure(fn, quantiles, return_mode, grad_to_none)


def _do_bench_cudagraph(fn, rep=20, grad_to_none=None, quantiles=None, return_mode="mean", **options):  # type: ignore
    from attune_sim import _bench

    return _bench.measure(fn, quantiles, return_mode, grad_to_none)


class StandIn:
    """Puts one call in the place of Triton's repetitions, and one size in that of a benchmark's, from start to end."""

    def __init__(self, benchmarks: str) -> None:
        self._is_first = benchmarks == "first"
        self._saved: list[tuple[FunctionType, Any, Any]] = []
        self._run = testing.Mark._run

    def start(self) -> None:
        for name in _NAMES:
            function = getattr(testing, name, None)
            if isinstance(function, FunctionType):
                stand_in = _do_bench_cudagraph if "cudagraph" in name else _do_bench
                self._saved.append((function, function.__code__, function.__defaults__))
                function.__code__, function.__defaults__ = stand_in.__code__, stand_in.__defaults__
        if self._is_first:
            testing.Mark._run = _first_size(self._run)

    def end(self) -> None:
        for function, code, defaults in self._saved:
            function.__code__, function.__defaults__ = code, defaults
        self._saved.clear()
        testing.Mark._run = self._run


def _first_size(run: Callable[..., Any]) -> Callable[..., Any]:
    """Mark._run, which runs a benchmark, with the first size of each."""

    def wrapped(mark: Any, bench: Any, *args: Any, **options: Any) -> Any:
        sizes = list(bench.x_vals)
        if len(sizes) > 1:
            text = f"attune: benchmark {bench.plot_name or mark.fn.__name__} runs the first of {len(sizes)} sizes"
            print(f"{text}; benchmarks=all runs all", file=sys.stderr)
        bench.x_vals = sizes[:1]
        try:
            return run(mark, bench, *args, **options)
        finally:
            bench.x_vals = sizes

    return wrapped
