"""Compiles the C library that `attune export` wrote into csrc, and the module that calls it."""

import os
import pathlib
import subprocess
import sysconfig

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
SOURCES = ROOT / "csrc"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        sources = sorted(SOURCES.glob("attune_*.c"))
        if not sources:
            raise SystemExit(f"{SOURCES} has no sources; `make wheel` in the repository writes them by `attune export`")
        include = pathlib.Path(sysconfig.get_path("include"))
        if not (include / "Python.h").exists():
            raise SystemExit(f"{include} has no Python.h; install the headers of this Python (python3-dev)")
        folder = pathlib.Path(self.build_lib) / "attune"
        compiler = os.environ.get("CC", "cc")
        flags = ["-std=c11", "-O2", "-fPIC", "-shared", f"-I{SOURCES}"]
        library = folder / "libattune_sdpa.so"
        subprocess.run([compiler, *flags, "-o", library, *sources, "-lpthread", "-ldl", "-lm"], check=True)
        # Of all libraries of this name the one beside the module, before those of LD_LIBRARY_PATH.
        found = "-Wl,--disable-new-dtags,-rpath,$ORIGIN"
        module = [ROOT / "src" / "call.c", f"-L{folder}", "-lattune_sdpa", found]
        subprocess.run([compiler, *flags, f"-I{include}", "-o", folder / "_call.abi3.so", *module], check=True)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


class StableWheel(bdist_wheel):
    """The module uses the stable interface of Python 3.10 only, so it is for all later versions."""

    def get_tag(self):
        return "cp310", "abi3", super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": StableWheel})
