"""The C library attune_sdpa, called through ctypes."""

import ctypes
import functools
import pathlib
import struct

# The fields of attune_sdpa_params in their order: size; q, k, v, o, lse and three descales; batch to
# head_dim; twelve strides; dtype, out_dtype, causal, scale, window_left, window_right; sinks,
# workspace and its size. All of them lie at multiples of their size, so that there is no padding.
PARAMS = struct.Struct("@N8P6i12q2iif2iPPN")

E4M3, FP16, BF16 = 1, 2, 3

_INVALID_ARGUMENT, _UNSUPPORTED = 1, 2


@functools.cache
def load():
    """The library of this package."""
    path = pathlib.Path(__file__).with_name("libattune_sdpa.so")
    if not path.exists():
        raise RuntimeError(f"{path} is missing: this is a source folder and not an installed wheel")
    library = ctypes.CDLL(str(path))
    library.attune_sdpa_forward.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.attune_sdpa_forward.restype = ctypes.c_int
    library.attune_sdpa_workspace_bytes.argtypes = [ctypes.c_char_p]
    library.attune_sdpa_workspace_bytes.restype = ctypes.c_size_t
    for name in ("attune_sdpa_form", "attune_sdpa_last_error", "attune_sdpa_version"):
        getattr(library, name).restype = ctypes.c_char_p
    library.attune_sdpa_form.argtypes = [ctypes.c_char_p]
    return library


def version():
    """The version of the library and its selection of kernels."""
    return load().attune_sdpa_version().decode()


def check(status):
    """Raises what a status of the library means."""
    if status == 0:
        return
    message = load().attune_sdpa_last_error().decode()
    if status == _INVALID_ARGUMENT:
        raise ValueError(message)
    if status == _UNSUPPORTED:
        raise NotImplementedError(message)
    raise RuntimeError(message)
