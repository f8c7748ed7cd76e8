"""Workspaces of the library: one for each stream, with counters that every call leaves at zero."""

import torch

_ZEROED = 65536  # ATTUNE_SDPA_ZEROED_BYTES
_GRAIN = 2 << 20

_workspaces = {}  # by (device, stream)

_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)


def take(device, stream, size):
    """Memory for a call on the current stream of the current device, its counters zero.

    Calls on a stream run one after the other and share a workspace. A captured call runs when its
    graph is replayed, maybe beside others of its stream, so it has one of its own, from the pool of
    the graph.
    """
    if _is_capturing():
        return _new(device, size)
    workspace = _workspaces.get((device, stream))
    if workspace is None or workspace.numel() < size:
        grown = 0 if workspace is None else workspace.numel() * 5 // 4
        size = -(-max(size, grown) // _GRAIN) * _GRAIN
        workspace = _new(device, size)
        if not _is_pooled(workspace):
            # The old one is freed on the stream that used it: PyTorch gives it to later work only.
            _workspaces[device, stream] = workspace
    return workspace


def _new(device, size):
    workspace = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", device))
    workspace[:_ZEROED].zero_()
    return workspace


def _is_pooled(tensor):
    """Whether a tensor is of a private pool: that of torch.compile's graphs may not hold it for long."""
    try:
        segments = torch.cuda.memory_snapshot()
    except (RuntimeError, AttributeError):  # an allocator without snapshots has no pools
        return False
    address = tensor.data_ptr()
    for segment in segments:
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    return False
