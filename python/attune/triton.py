"""Triton kernels on attune's simulator, with all its checkers and without a GPU.

>>> import attune.triton
>>> attune.triton.install()
>>> kernel[grid](x, y, n)  # x, y: CPU tensors or numpy arrays; a defect raises attune.triton.Finding
"""

import argparse
import functools
import os
import runpy
import sys
from typing import Any

import numpy
import torch
import triton
from triton.runtime.jit import JITFunction

from attune import _cuda, _triton
from attune._simulator import Simulator
from attune._triton import Finding

__all__ = ["Finding", "install", "uninstall"]


class _Installed:
    """What install has changed."""

    def __init__(self, simulator: Simulator, mapping: _cuda.Mapping | None) -> None:
        self.simulator = simulator
        self.mapping = mapping
        self.run = JITFunction.run
        self.driver = triton.runtime.driver._active


_installed: _Installed | None = None


def install(
    checks: str = "all",
    strict: bool = False,
    sample: int | None = None,
    arch: str = "sm_90a",
    torch_cuda: bool = False,
    flags: tuple[str, ...] = (),
) -> None:
    """Runs the kernels of this process on the simulator until uninstall.

    checks: "all", or "off" for speed.
    strict: raise findings that hardware tolerates too.
    sample: check the first launches of each kernel only, so many.
    arch: the simulated device, which Triton compiles for.
    torch_cuda: the device "cuda" of PyTorch is memory of the host, so that scripts for a GPU run unchanged.
    flags: further flags of `attune exec`, such as ("--sarif", "findings.sarif").
    """
    global _installed
    if checks not in ("all", "off"):
        raise ValueError(f'checks={checks!r}; want "all" or "off"')
    if _installed is not None:
        uninstall()
    options = [f"--arch={arch}", *flags]
    options += ["--checks=off"] if checks == "off" else []
    options += [f"--sample={sample}"] if sample is not None else []
    simulator = Simulator(options)
    _installed = _Installed(simulator, _cuda.Mapping(arch) if torch_cuda else None)
    driver = _triton.Driver(simulator, arch, strict, torch_cuda)
    _triton.set_active(driver)
    triton.runtime.driver.set_active(driver)
    JITFunction.run = _run_with_arrays(_installed.run)
    if _installed.mapping is not None:
        _installed.mapping.start()


def uninstall() -> None:
    """Ends the simulator. Kernels run on the GPU again, if there is one."""
    global _installed
    if _installed is None:
        return
    if _installed.mapping is not None:
        _installed.mapping.end()
    JITFunction.run = _installed.run
    triton.runtime.driver.set_active(_installed.driver)
    _triton.set_active(None)
    _installed.simulator.close()
    _installed = None


def _run_with_arrays(run: Any) -> Any:
    """JITFunction.run, which takes numpy arrays too. Tensors share their memory."""

    def tensor(value: Any) -> Any:
        if not isinstance(value, numpy.ndarray):
            return value
        if not value.flags.writeable:
            value = value.copy()
        return torch.from_numpy(value)

    @functools.wraps(run)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, *map(tensor, args), **{name: tensor(value) for name, value in kwargs.items()})

    return wrapped


def main() -> None:
    """python -m attune.triton SCRIPT ARGS...: runs a script for a GPU on the simulator."""
    parser = argparse.ArgumentParser(prog="python -m attune.triton", description=main.__doc__)
    parser.add_argument("--checks", default="all", choices=["all", "off"], help="checkers, or none for speed")
    parser.add_argument("--strict", action="store_true", help="raise findings that hardware tolerates too")
    parser.add_argument("--sample", type=int, help="check the first launches of each kernel only, so many")
    parser.add_argument("--arch", default="sm_90a", help="the simulated device (default %(default)s)")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    o = parser.parse_args()
    sys.argv = [o.script, *o.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(o.script))
    attune_triton = sys.modules.get("attune.triton") or __import__("attune.triton", fromlist=["install"])
    attune_triton.install(o.checks, o.strict, o.sample, o.arch, torch_cuda=True)
    runpy.run_path(o.script, run_name="__main__")


if __name__ == "__main__":
    main()
