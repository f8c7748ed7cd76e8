"""Triton's handle of cuBLAS, on the host: NVIDIA's library needs NVIDIA's driver."""

import contextlib
from typing import Any

import torch


class CublasLt:
    """Products of matrices as cuBLAS makes them: of rows by rows, with sums in float32."""

    def __init__(self, workspace: torch.Tensor) -> None:
        pass

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        c.copy_(a.float() @ b.float().T)

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())


class StandIn:
    """Puts the handle in the place of Triton's, from start to end."""

    def __init__(self) -> None:
        self._module: Any = None
        with contextlib.suppress(ImportError, AttributeError):
            from triton._C.libtriton import nvidia

            self._module, self._handle = nvidia.cublas, nvidia.cublas.CublasLt

    def start(self) -> None:
        if self._module is not None:
            self._module.CublasLt = CublasLt

    def end(self) -> None:
        if self._module is not None:
            self._module.CublasLt = self._handle
