"""Compiles the C library that `attune export` wrote into csrc, and puts it into the wheel."""

import os
import pathlib
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
SOURCES = ROOT / "csrc"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        source = SOURCES / "attune_sdpa.c"
        if not source.exists():
            raise SystemExit(f"{source} is missing; `make wheel` in the repository writes it by `attune export`")
        library = pathlib.Path(self.build_lib) / "attune" / "libattune_sdpa.so"
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-std=c11", "-O2", "-fPIC", "-shared", "-o", library]
        command += [*sorted(SOURCES.glob("attune_*.c")), "-lpthread", "-ldl", "-lm"]
        subprocess.run(command, check=True)


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """The library depends on the platform, and not on the version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=WithLibrary, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
