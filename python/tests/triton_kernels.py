"""Kernels of test_triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, EXTRA: tl.constexpr = 0):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n + EXTRA
    both = tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask)  # line 12
    tl.store(out + i, both, mask=mask)


@triton.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, factor * tl.load(x + i, mask=i < n), mask=i < n)


tuned = triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 1), (256, 2))], key=["n"])(scale)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def whole(x, out, factor, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, factor * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def gather(table, out, n: tl.constexpr):
    """Copies the first element of each of the tensors whose addresses the table has."""
    for i in range(n):
        source = tl.load(table + i).to(tl.pointer_type(tl.float32))
        tl.store(out + i, tl.load(source))


@triton.jit
def transpose(source, target, M: tl.constexpr, N: tl.constexpr):
    """Descriptors of the host."""
    target.store([0, 0], source.load([0, 0]).T)


@triton.jit
def copy(source, target, M: tl.constexpr, N: tl.constexpr):
    """Descriptors of the kernel, in scratch memory."""
    a = tl.make_tensor_descriptor(source, [M, N], [N, 1], [M, N])
    b = tl.make_tensor_descriptor(target, [M, N], [N, 1], [M, N])
    b.store([0, 0], a.load([0, 0]))


@triton.jit
def copy_bytes(source, target, N: tl.constexpr):
    tl.make_tensor_descriptor(target, [N], [1], [N]).store([0], tl.load(source + tl.arange(0, N)))


@triton.jit
def increment(x, BLOCK: tl.constexpr):
    i = x + tl.arange(0, BLOCK)
    tl.store(i, tl.load(i) + 1)


@triton.jit
def multiply(a, b, c, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(c + i * N + j, tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j)))


@triton.jit
def check(x):
    tl.device_assert(tl.load(x) > 0, "positive")


@triton.jit
def show(x):
    tl.device_print("value", tl.load(x))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        out = torch.empty(x.shape, device="cuda")
        scale[(1,)](x, out, 2.0, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(context, gradient):
        assert gradient.is_cuda
        out = torch.empty(gradient.shape, device="cuda")
        scale[(1,)](gradient.contiguous(), out, 2.0, gradient.numel(), BLOCK=256)
        return out
