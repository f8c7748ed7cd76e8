"""python -m attune: what is installed, and whether it works here."""

import argparse
import ctypes
import sys
from typing import Any

import torch
from torch import Tensor

from attune import _library, _reference
from attune._attention import sdpa
from attune._cache import append, decode

_DRIVER = 11080  # CUDA 11.8, driver 520
_HOPPER_DRIVER = 13000  # CUDA 13.0, driver 580
_LIMIT = 0.08  # relative RMS error; E4M3 inputs cost 0.05 (docs/accuracy.md)


def _package() -> str:
    version = _library.package()
    return "not installed: a source folder" if version == "0" else version


def _library_version() -> str:
    try:
        return _library.version()
    except RuntimeError as problem:
        return f"none: {problem}"


def _driver() -> int:
    """The CUDA version of the driver, 13000 for 13.0; 0 without one. PyTorch's function fails before it uses a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version = ctypes.c_int()
    return version.value if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 else 0


def facts() -> dict[str, str]:
    """What is installed, by name."""
    found = {"attune": _package(), "library": _library_version(), "PyTorch": torch.__version__}
    driver = _driver()
    found["driver"] = f"CUDA {driver // 1000}.{driver % 1000 // 10}" if driver else "none"
    for n in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        major, minor = torch.cuda.get_device_capability(n)
        found[f"GPU {n}"] = f"{torch.cuda.get_device_name(n)}, compute capability {major}.{minor}"
    return found


def missing() -> list[str]:
    """What the kernels need and this machine does not have."""
    reasons = []
    if _library._call is None:
        reasons.append("the compiled library: install the wheel that `make wheel` builds")
    if not torch.cuda.is_available():
        reasons.append("a GPU that PyTorch can use")
    elif torch.cuda.get_device_capability() < (8, 0):
        reasons.append("a GPU since Ampere, compute capability 8.0 or later, as current device")
    if _has_hopper() and _driver() < _HOPPER_DRIVER:
        reasons.append("NVIDIA's driver 580 or later (CUDA 13.0), for a Hopper GPU")
    elif _driver() < _DRIVER:
        reasons.append("NVIDIA's driver 520 or later (CUDA 11.8)")
    return reasons


def _has_hopper() -> bool:
    return torch.cuda.is_available() and _library.is_hopper(_library.planned_arch(*torch.cuda.get_device_capability()))


def self_test(device: str) -> bool:
    """Computes a few problems and compares them with float32 attention. Prints a line for each."""
    passed = True
    for head_dim in (64, 128, 256):
        for keys, causal in ((512, False), (512, True), (8192, False)):
            random = torch.Generator(device).manual_seed(1)
            q = torch.randn(1, 4, 256, head_dim, generator=random, device=device).bfloat16()
            k, v = (torch.randn(1, 2, keys, head_dim, generator=random, device=device).bfloat16() for _ in range(2))
            name = f"1x4x256x{head_dim}, {keys} keys" + (", causal" if causal else "")
            want = _reference.explicit(q, k, v, causal, None, -1, -1, None)[0]
            passed &= _compare(name, sdpa(q, k, v, causal=causal), want)
            if keys == 512:
                passed &= _compare(f"{name}, in 8 bits", sdpa(q, k, v, causal=causal, precision="fp8"), want)
    return passed & _test_cache(device)


def _test_cache(device: str) -> bool:
    """A row is appended to a paged cache in E4M3, which a query then attends to."""
    random = torch.Generator(device).manual_seed(1)
    q, k, v = (torch.randn(2, 2, 1, 128, generator=random, device=device).bfloat16() for _ in range(3))
    descale = (torch.full((2, 2), 0.01, device=device),) * 2
    k_cache, v_cache = (torch.zeros(4, 2, 64, 128, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    table = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32, device=device)
    lengths = torch.zeros(2, dtype=torch.int32, device=device)
    append(k, v, k_cache, v_cache, lengths, page_table=table, descale=descale)
    o = decode(q, k_cache, v_cache, lengths + 1, page_table=table, descale=descale)
    return _compare("append and decode, pages of 64 keys", o, v)  # the only key has all weight


def _compare(name: str, got: Tensor, want: Tensor) -> bool:
    error = ((got.float() - want.float()).pow(2).mean().sqrt() / want.float().pow(2).mean().sqrt()).item()
    passed = error < _LIMIT  # not for NaN
    print(f"{'ok' if passed else 'FAILED':6}  {error:.4f}  {name}")
    return passed


def main(argv: Any = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m attune", description=__doc__)
    parser.add_argument("--self-test", action="store_true", help="compute a few problems on the current GPU")
    options = parser.parse_args(argv)
    for name, value in facts().items():
        print(f"{name:8}  {value}")
    reasons = missing()
    for reason in reasons:
        print(f"missing:  {reason}")
    if not options.self_test:
        return 0
    if reasons:
        print("self-test: not run, see above; attune.sdpa(..., fallback=True) computes by PyTorch", file=sys.stderr)
        return 1
    print("relative error against float32:")
    return 0 if self_test("cuda") else 1


if __name__ == "__main__":
    sys.exit(main())
