"""Workspaces of the library: one for each stream, with counters that every call leaves at zero."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor

_ZEROED = 65536  # ATTUNE_SDPA_ZEROED_BYTES
_GRAIN = 2 << 20

_workspaces: dict[tuple[int, int], tuple[int, Tensor]] = {}  # by (device, stream): (bytes, tensor)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.captured: dict[tuple[int, int], Tensor] = {}  # by (capture, stream)
        self.temporary = False


_thread = _Thread()
_has_captured = False  # in any thread

# Whether the current stream is captured.
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)


def take(device: int, stream: int, size: int) -> Tensor:
    """Memory for a call on the current stream of the current device, its counters zero.

    Calls on a stream run one after the other and share a workspace. A captured call runs when its
    graph is replayed, maybe beside others of its stream, so the calls of a capture share another,
    from the pool of the graph.
    """
    if _is_capturing():
        return _take_captured(device, stream, size)
    if _has_captured:
        _thread.captured.clear()
    held, workspace = _workspaces.get((device, stream), (0, None))
    if workspace is None or held < size:
        size = -(-max(size, held * 5 // 4) // _GRAIN) * _GRAIN
        workspace = _new(device, size)
        if not _is_pooled(workspace):
            # The old one is freed on the stream that used it: PyTorch gives it to later work only.
            _workspaces[device, stream] = size, workspace
    return workspace


def is_held(device: int, stream: int, workspace: Tensor) -> bool:
    """Whether later calls on a stream, outside of a capture, have this workspace too."""
    return _workspaces.get((device, stream), (0, None))[1] is workspace


def _take_captured(device: int, stream: int, size: int) -> Tensor:
    """The workspace is zeroed in the graph. It is held until the thread does not capture any more."""
    global _has_captured
    capture = None if _thread.temporary else _capture(stream)
    if capture is None:
        return _new(device, size)
    workspace = _thread.captured.get((capture, stream))
    if workspace is None or workspace.numel() < size:
        workspace = _thread.captured[capture, stream] = _new(device, size)
        _has_captured = True
    return workspace


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """In this block captured calls leave nothing in the pool: torch.compile checks that of its graphs."""
    before, _thread.temporary = _thread.temporary, True
    try:
        yield
    finally:
        _thread.temporary = before


@functools.cache
def _capture_info() -> Any:
    """A function of the driver, or None."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2
    except (OSError, AttributeError):
        return None


def _capture(stream: int) -> Optional[int]:
    """The number of the capture that a stream is in, or None if it cannot be known."""
    info, status, number = _capture_info(), ctypes.c_int(0), ctypes.c_uint64(0)
    if info is None or info(ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None) != 0:
        return None
    return number.value if status.value == 1 else None


def _new(device: int, size: int) -> Tensor:
    workspace = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))
    workspace[:_ZEROED].zero_()
    return workspace


def _is_pooled(tensor: Tensor) -> bool:
    """Whether a tensor is of a private pool: that of torch.compile's graphs may not hold it for long."""
    try:
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError):  # an allocator without snapshots has no pools
        return False
    address = tensor.data_ptr()
    for segment in segments:
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return False
