"""Predicted device times of the kernels, from times that were measured on one card."""

import math
from typing import Optional

import torch
from torch import Tensor

from attune import _check
from attune._arguments import Call

CARD, GPU = "NVIDIA H200", (90, 132)  # its name, architecture and multiprocessors

# Microseconds of the selection stage7 by (head_dim, causal) and the number of keys, as many as queries. Each problem
# has 2^25 elements of Q. From results/benches/20261116-221937-bench-6be430, rows "stage7".
MEASURED = {
    (64, False): {512: 113.53, 1024: 208.82, 2048: 390.93, 4096: 763.70, 8192: 1484.92, 16384: 2966.54},
    (64, True): {512: 92.40, 1024: 135.85, 2048: 233.50, 4096: 430.67, 8192: 802.26, 16384: 1539.19},
    (128, False): {512: 97.09, 1024: 167.72, 2048: 305.42, 4096: 599.87, 8192: 1165.64, 16384: 2297.71},
    (128, True): {512: 83.33, 1024: 119.83, 2048: 204.73, 4096: 347.37, 8192: 617.42, 16384: 1188.08},
    (256, False): {512: 85.75, 1024: 147.89, 2048: 270.20, 4096: 516.74, 8192: 1012.26, 16384: 2004.82},
    (256, True): {512: 65.34, 1024: 98.03, 2048: 160.98, 4096: 296.28, 8192: 543.07, 16384: 1012.79},
}
ELEMENTS = 1 << 25
LAUNCH = 1.97  # of 1x1x32x64, in results/runs/20261118-090125-stage7-2f1514
TILE_M, TILE_N = 128, 256  # what rows and keys are rounded up to
MIN_TILES = 128  # with fewer, multiprocessors are idle, and forms divide the keys among warps


def predicted(call: Call, kernel: str) -> Optional[float]:
    """Microseconds on CARD of a call in E4M3, or None where nothing like it was measured."""
    q, k = call.q, call.k
    if kernel != "dense" or q.dtype != _check.FP8 or call.return_lse or q.shape[1] != k.shape[1] or _is_other_card(q):
        return None
    if call.causal and q.shape[2] != k.shape[2]:
        return None
    return interpolated(q.shape[0] * q.shape[1], q.shape[2], k.shape[2], q.shape[3], call.causal)


def _is_other_card(q: Tensor) -> bool:
    """Tensors without a card are as on CARD."""
    if q.device.type != "cuda" or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_name(q.device) != CARD


def interpolated(heads: int, queries: int, keys: int, head_dim: int, causal: bool, left_out: int = 0) -> Optional[float]:
    """The time by work: heads * queries * keys in whole tiles. Its rate is interpolated between the numbers of keys that
    were measured, but for left_out."""
    measured = {n: us for n, us in MEASURED.get((head_dim, causal), {}).items() if n != left_out}
    tiles = heads * math.ceil(queries / TILE_M)
    columns = math.ceil(keys / TILE_N) * TILE_N
    if tiles < MIN_TILES or not measured or not min(measured) <= columns <= max(measured):
        return None
    rates = {n: (us - LAUNCH) / (ELEMENTS / head_dim * n) for n, us in measured.items()}
    low, high = max(n for n in rates if n <= columns), min(n for n in rates if n >= columns)
    part = math.log(columns / low) / math.log(high / low) if high > low else 0.0
    rate = math.exp((1 - part) * math.log(rates[low]) + part * math.log(rates[high]))
    return LAUNCH + rate * tiles * TILE_M * columns
