"""The compiled part of the package: the C library, and the module that calls it on tensors."""

import contextlib
import importlib
import importlib.metadata
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from attune import _workspace
from attune._check import Result

try:
    _call: Any = importlib.import_module("attune._call")
except ImportError as problem:
    _call, _problem = None, problem

# The numbers of dtypes in src/call.c; the first three are those of the library.
DTYPES = {torch.float8_e4m3fn: 1, torch.float16: 2, torch.bfloat16: 3, torch.float32: 4, torch.int32: 5, torch.int64: 6,
          torch.uint64: 6}  # fmt: skip
_CUDA = 2  # the device type of DLPack
_HOPPER = 90


def _empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _fast_empty() -> Callable[..., Tensor]:
    """The function of torch.compile's code for new tensors, which takes a third of the time."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_empty_strided_cuda", _empty)


def _take_workspace(device: int, stream: int, size: int) -> tuple[Tensor, bool]:
    workspace = _workspace.take(device, stream, size)
    return workspace, _workspace.is_held(device, stream, workspace)


def _bind(device: int) -> None:
    """Makes the context of a device current on this thread, as PyTorch does at its first launch."""
    torch.cuda.mem_get_info(device)


def gpu(device: int) -> tuple[int, int]:
    """The architecture that calls on a device are planned for, 89 for sm_89, and its multiprocessors."""
    facts = torch.cuda.get_device_properties(device)
    return planned_arch(facts.major, facts.minor), facts.multi_processor_count


def is_hopper(arch: int) -> bool:
    """Whether calls that are planned for an architecture run the kernels for Hopper."""
    return arch == _HOPPER


def planned_arch(major: int, minor: int) -> int:
    """That of a GPU, or an earlier one that ATTUNE_ARCH names. The library refuses other values of the variable."""
    arch, named = 10 * major + minor, os.environ.get("ATTUNE_ARCH", "").removeprefix("sm_")
    return min(int(named), arch) if named.isdecimal() else arch


def _of_cuda(name: str) -> Optional[Callable[..., Any]]:
    """A function of PyTorch that a build without CUDA does not have, and that is then not called."""
    return getattr(torch._C, name, None)


def _bump_each(tensors: Sequence[Tensor]) -> None:
    for x in tensors:
        if not x.is_inference():  # which has no version
            torch._C._increment_version(x)


def _bump_function() -> Callable[[Sequence[Tensor]], None]:
    """Increments the version counters of tensors. PyTorch's function took one tensor in earlier versions."""
    try:
        torch._C._increment_version(())
    except (RuntimeError, TypeError):
        return _bump_each
    return torch._C._increment_version


def configure(device_type: int = _CUDA, exchange: bool = True, **replaced: Any) -> None:
    """Tells the module what it needs of PyTorch; tests replace functions, for tensors on a CPU."""
    functions = {
        "modes": torch._C._len_torch_dispatch_stack,
        "grad_enabled": torch.is_grad_enabled,
        "current_device": _of_cuda("_cuda_getDevice"),
        "raw_stream": _of_cuda("_cuda_getCurrentRawStream"),
        "empty": _fast_empty(),
        "workspace": _take_workspace,
        "bind": _bind,
        "capturing": _workspace._is_capturing,
        "tracing": torch._C._get_tracing_state,
        "transforms": torch._C._functorch.peek_interpreter_stack,
        "forward_ad": forward_ad,
        "bump": _bump_function(),
        "is_neg": Tensor.is_neg,
        "gpu": gpu,
    }
    functions.update(replaced)
    table = getattr(Tensor, "__dlpack_c_exchange_api__", None) if exchange else None
    _call.configure(Tensor, torch.nn.Parameter, table, DTYPES, tuple(functions.values()), device_type)


def _nothing(*arguments: object) -> None:
    """Stands for a function of the module that is not there: the call goes on to load()."""


attend: Callable[..., Optional[Result]] = _nothing
append: Callable[..., Optional[bool]] = _nothing
if _call is not None:
    configure()
    attend, append = _call.attend, _call.append


def load() -> Any:
    """The module, or RuntimeError where it was not compiled."""
    if _call is None:
        raise RuntimeError(
            f"the compiled part of attune is missing ({_problem}): "
            "this is a source folder; `make wheel` builds the package"
        )
    return _call


def load_for_launch() -> Any:
    """The module, or RuntimeError where CUDA cannot be used."""
    if getattr(torch._C, "_cuda_isInBadFork", lambda: False)():
        raise RuntimeError("this process is a fork of one that had used CUDA, and cannot use it; start it by spawn")
    return load()


# What the library calls things, and what the package calls them.
_WORDS = (
    (r" is 0x[0-9a-f]+", " is given"),
    (r", and the library exported with prefill16", ""),  # that of the package is
    (r"precision is ATTUNE_SDPA_PRECISION_16", 'precision is "16"'),
    (r"ATTUNE_SDPA_PRECISION_16", 'precision="16"'),
    (r"ATTUNE_SDPA_PRECISION_FP8", 'precision="fp8"'),
    (r"ATTUNE_SDPA_", ""),
    (r"\b((?:q_|out_)?dtype(?: is)?) 1\b", r"\1 E4M3"),  # values of attune_sdpa_dtype
    (r"\b((?:q_|out_)?dtype(?: is)?) 2\b", r"\1 FP16"),
    (r"\b((?:q_|out_)?dtype(?: is)?) 3\b", r"\1 BF16"),
    (r"\bq_dtype\b", "the dtype of q"),
    (r"\bout_dtype\b", "that of o"),
    (r"\b(\w+)_stride\[\d\]", r"a stride of \1"),
    (r"\bcu_queries\b", "cu_seqlens_q"),
    (r"\bcu_keys\b", "cu_seqlens_k"),
    (r"\bkey_lengths\b", "lengths"),
    (r"\bNULL\b", "None"),
)


@contextlib.contextmanager
def python_words() -> Iterator[None]:
    """What the library refuses in this block, it refuses in the words of the package."""
    try:
        yield
    except NotImplementedError as problem:
        text = str(problem)
        for pattern, word in _WORDS:
            text = re.sub(pattern, word, text)
        raise NotImplementedError(text) from None


def package() -> str:
    """The version of the installed package; "0" where this is a source folder."""
    try:
        return importlib.metadata.version("attune")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def version() -> str:
    """The version of the library and its selection of kernels."""
    text: str = load().version()
    return text
