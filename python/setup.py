"""Compiles the C library that `attune export` wrote into csrc, and the module that calls it."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
SOURCES = ROOT / "csrc"


# The platform of the wheel, such as manylinux_2_17_aarch64. Without it the wheel is for this machine, by its compiler.
PLATFORM = os.environ.get("ATTUNE_PLATFORM")


# A wheel without the kernels of attention: the simulator's part needs none.
WITHOUT_LIBRARY = os.environ.get("ATTUNE_WITHOUT_LIBRARY", "0") != "0"


def compiler():
    """With PLATFORM, Zig's: it has the headers and the symbols of all versions of glibc, for all processors."""
    if not PLATFORM:
        return [os.environ.get("CC", "cc")]
    parts = re.fullmatch(r"manylinux_(\d+_\d+)_(x86_64|aarch64)", PLATFORM)
    if not parts:
        raise SystemExit(f"ATTUNE_PLATFORM is {PLATFORM!r}; it must be like manylinux_2_17_x86_64, or ..._aarch64")
    target = f"{parts[2]}-linux-gnu.{parts[1].replace('_', '.')}"
    # Both processors must choose the same kernels. Clang would fuse products and sums on aarch64.
    return [sys.executable, "-m", "ziglang", "cc", "-target", target, "-s", "-ffp-contract=off"]


def copy_headers(folder):
    """Python's headers with the configuration of the target, which Python.h looks for beside itself."""
    include = pathlib.Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        raise SystemExit(f"{include} has no Python.h; install the headers of this Python (python3-dev)")
    shutil.copytree(include, folder)
    shutil.copy(ROOT / "src" / "pyconfig.h", folder)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if WITHOUT_LIBRARY:
            return
        sources = sorted(SOURCES.glob("attune_*.c"))
        if not sources:
            raise SystemExit(f"{SOURCES} has no sources; `make wheel` in the repository writes them by `attune export`")
        folder = pathlib.Path(self.build_lib) / "attune"
        build = [*compiler(), "-std=c11", "-O2", "-fPIC", "-shared", f"-I{SOURCES}"]
        # Without a name of its own the module would look for the library where it was at the link.
        library = ["-Wl,-soname,libattune_sdpa.so", "-o", folder / "libattune_sdpa.so"]
        subprocess.run([*build, *library, *sources, "-lpthread", "-ldl", "-lm"], check=True)
        # Of all libraries of this name the one beside the module, before those of LD_LIBRARY_PATH.
        found = "-Wl,--disable-new-dtags,-rpath,$ORIGIN"
        module = [ROOT / "src" / "call.c", f"-L{folder}", "-lattune_sdpa", "-ldl", found]
        with tempfile.TemporaryDirectory() as temporary:
            headers = pathlib.Path(temporary) / "include"
            copy_headers(headers)
            subprocess.run([*build, f"-I{headers}", "-o", folder / "_call.abi3.so", *module], check=True)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return not WITHOUT_LIBRARY


class StableWheel(bdist_wheel):
    """The module uses the stable interface of Python 3.10 only, so it is for all later versions."""

    def get_tag(self):
        if WITHOUT_LIBRARY:
            return "py3", "none", "any"
        return "cp310", "abi3", PLATFORM or super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": StableWheel})
