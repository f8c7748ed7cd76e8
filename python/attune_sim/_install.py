"""Makes the simulator the device of Triton."""

import functools
import os
import sys
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

from attune_sim import _bench, _cublas, _cuda, _triton
from attune_sim._simulator import Simulator


class _Installed:
    """What install has changed."""

    def __init__(self, simulator: Simulator, benchmarks: str) -> None:
        self.simulator = simulator
        self.cublas = _cublas.StandIn()
        self.bench = _bench.StandIn(benchmarks)
        self.run = JITFunction.run
        self.driver = triton.runtime.driver._active


_installed: _Installed | None = None


def install(
    checks: str = "all",
    strict: bool = False,
    sample: int | None = None,
    arch: str = "sm_90a",
    torch_cuda: bool = False,
    autotune: str = "all",
    flags: tuple[str, ...] = (),
    benchmarks: str = "first",
) -> None:
    """Runs the kernels of this process on the simulator until uninstall.

    checks: "all", or "off" for speed.
    strict: raise findings that hardware tolerates too.
    sample: check the first launches of each kernel only, so many.
    arch: the simulated device, which Triton compiles for.
    torch_cuda: the device "cuda" of PyTorch is memory of the host, so that scripts for a GPU run unchanged.
    autotune: "all" runs each configuration once, and takes that of the fewest instructions; "first" takes the first.
    flags: further flags of `attune exec`, such as ("--sarif", "findings.sarif").
    benchmarks: "first" runs triton.testing.perf_report with the first of its sizes, "all" with all.
    """
    global _installed
    if checks not in ("all", "off"):
        raise ValueError(f'checks={checks!r}; want "all" or "off"')
    for name, value in (("autotune", autotune), ("benchmarks", benchmarks)):
        if value not in ("all", "first"):
            raise ValueError(f'{name}={value!r}; want "all" or "first"')
    if _installed is not None:
        uninstall()
    options = [f"--arch={arch}", *flags]
    options += ["--checks=off"] if checks == "off" else []
    options += [f"--sample={sample}"] if sample is not None else []
    simulator = Simulator(options)
    _cuda.Device.arch = arch
    _installed = _Installed(simulator, benchmarks)
    driver = _triton.Driver(simulator, strict, torch_cuda, autotune)
    _triton.set_active(driver)
    _triton.forget_kernels()
    triton.runtime.driver.set_active(driver)
    JITFunction.run = _run_with_arrays(_installed.run)
    _installed.bench.start()
    if torch_cuda:
        _cuda.mapping.start()
        _installed.cublas.start()


def install_from_environment() -> None:
    """What ATTUNE_SIM=1 does. The variable may have options too: ATTUNE_SIM="checks=off arch=sm_120a"."""
    words = dict(word.partition("=")[::2] for word in os.environ.get("ATTUNE_SIM", "").split())
    unknown = words.keys() - {"1", "checks", "strict", "sample", "arch", "autotune", "benchmarks"}
    if unknown:
        wanted = "1, or checks=off, strict=1, sample=N, arch=ARCH, autotune=first, benchmarks=all"
        raise ValueError(f"ATTUNE_SIM has {unknown.pop()!r}; want {wanted}")
    install(
        checks=words.get("checks", "all"),
        strict=words.get("strict", "0") != "0",
        sample=int(words["sample"]) if "sample" in words else None,
        arch=words.get("arch", "sm_90a"),
        torch_cuda=True,
        autotune=words.get("autotune", "all"),
        benchmarks=words.get("benchmarks", "first"),
    )


def uninstall() -> None:
    """Ends the simulator. Kernels run on the GPU again, if there is one."""
    global _installed
    if _installed is None:
        return
    _cuda.mapping.end()
    _installed.cublas.end()
    _installed.bench.end()
    JITFunction.run = _installed.run
    _triton.forget_kernels()  # each asks the active driver to unload it
    triton.runtime.driver.set_active(_installed.driver)
    _triton.set_active(None)
    _installed.simulator.close()
    _installed = None


def _run_with_arrays(run: Any) -> Any:
    """JITFunction.run, which takes numpy arrays too. Tensors share their memory."""

    def tensor(value: Any) -> Any:
        numpy = sys.modules.get("numpy")  # a script with arrays has imported it
        if numpy is None or not isinstance(value, numpy.ndarray):
            return value
        if not value.flags.writeable:
            value = value.copy()
        return torch.from_numpy(value)

    @functools.wraps(run)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return run(self, *map(tensor, args), **{name: tensor(value) for name, value in kwargs.items()})

    return wrapped
