"""Makes `import attune` work in a source folder: with a double of the C library, compiled here.

Import it before attune. An installed wheel is used as it is; without a C compiler or Python's
headers the package has no compiled part, and the tests that need it are skipped.
"""

import atexit
import ctypes
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

PYTHON = pathlib.Path(__file__).resolve().parents[1]
HEADER = PYTHON.parent / "clib" / "src"


def _is_installed():
    found = importlib.util.find_spec("attune")
    return found is not None and any(pathlib.Path(found.origin).parent.glob("_call.*"))


def _sources():
    """Of the library in the folder ATTUNE_SOURCES, which `attune export` has written, or of its double."""
    folder = os.environ.get("ATTUNE_SOURCES")
    return sorted(pathlib.Path(folder).glob("attune_*.c")) if folder else [PYTHON / "tests" / "double.c"]


def _compile(folder):
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{HEADER}"]
    flags += os.environ.get("CFLAGS", "").split()
    library, module = folder / "libattune_sdpa.so", folder / "_call.abi3.so"
    command = [compiler, *flags, "-Wl,-soname,libattune_sdpa.so", "-o", library, *_sources()]
    subprocess.run([*command, "-lpthread", "-ldl", "-lm"], check=True)
    include = f"-I{sysconfig.get_path('include')}"
    command = [compiler, *flags, include, "-o", module, PYTHON / "src" / "call.c", library, "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, check=True)


def _build():
    root = pathlib.Path(tempfile.mkdtemp(prefix="attune-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder = root / "attune"
    for package in ("attune", "attune_sim"):
        shutil.copytree(PYTHON / package, root / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    headers = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    if headers.exists() and shutil.which(os.environ.get("CC", "cc")) and HEADER.exists():
        _compile(folder)
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()


def has(module):
    """Whether this Python has a module."""
    return importlib.util.find_spec(module) is not None


def double():
    """The double of the library, or None if the package has the real one or none."""
    import attune

    path = pathlib.Path(attune.__file__).with_name("libattune_sdpa.so")
    library = ctypes.CDLL(str(path)) if path.exists() else None
    return library if hasattr(library, "double_calls") else None


def cannot_fake_cuda():
    """Why no fake tensor on a CUDA device can be indexed: PyTorch 2.6 asks the driver for that. None if it can."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
            torch.empty(2, device="cuda")[:1]
    except RuntimeError as problem:
        return f"PyTorch {torch.__version__} needs a GPU for fake CUDA tensors: {str(problem).splitlines()[0]}"
    return None


if "attune" not in sys.modules and not _is_installed():
    _build()
