"""A fake of the part of PyTorch that the helper uses. Tensors are arrays; a graph records calls and repeats them."""
import array
import contextlib
import math
import os
import struct
import sys
import time

__version__ = "2.11.0"
float32, uint8, float16, bfloat16, float8_e4m3fn = "float32", "uint8", "float16", "bfloat16", "float8_e4m3fn"


class version:
    cuda = "13.0"


class backends:
    class cudnn:
        @staticmethod
        def is_available():
            return True

        @staticmethod
        def version():
            return 91900


class Tensor:
    def __init__(self, values, shape, dtype):
        self.values, self.shape, self.dtype = array.array("f", values), tuple(shape), dtype
        self.on_gpu = False

    def reshape(self, shape):
        return self.like(self.values, shape)

    def like(self, values, shape):
        t = Tensor(values, shape, self.dtype)
        t.on_gpu = self.on_gpu
        return t

    def cuda(self):
        t = self.like(self.values, self.shape)
        t.on_gpu = True
        return t

    def cpu(self):
        self.on_gpu = False
        return self

    def contiguous(self):
        return self

    def float(self):
        t = self.like(self.values, self.shape)
        t.dtype = float32
        return t

    def to(self, kind):
        t = self.like(self.values, self.shape)
        if kind == float16:
            t.values = array.array("f", (struct.unpack("e", struct.pack("e", x))[0] for x in self.values))
        t.dtype = kind
        return t

    def fill_(self, value):
        for i in range(len(self.values)):
            self.values[i] = value

    def data_ptr(self):
        assert not self.on_gpu
        return self.values.buffer_info()[0]

    def numel(self):
        return len(self.values)

    def element_size(self):
        return self.values.itemsize


def frombuffer(data, dtype):
    assert dtype == float32
    values = array.array("f", bytes(data))
    return Tensor(values, (len(values),), dtype)


@contextlib.contextmanager
def no_grad():
    yield


class cuda:
    captured = None  # the calls of the graph that is being captured
    streams = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            assert cuda.streams[-1] is stream
            self.at = time.perf_counter()

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return (end.at - self.at) * 1e3

    class Stream:
        def synchronize(self):
            pass

    class CUDAGraph:
        def replay(self):
            for call in self.work:
                call()

    @staticmethod
    @contextlib.contextmanager
    def stream(stream):
        cuda.streams.append(stream)
        yield
        cuda.streams.pop()

    @staticmethod
    @contextlib.contextmanager
    def graph(graph, stream):
        cuda.captured = []
        yield
        graph.work, cuda.captured = cuda.captured, None

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def set_device(index):
        pass

    @staticmethod
    def synchronize():
        pass

    @staticmethod
    def empty_cache():
        pass

    @staticmethod
    def get_device_properties(index):
        class properties:
            name = "A fake GPU"
            uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
        return properties


def attention(q, k, v, is_causal):
    batch, heads, queries, dim = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    out = []
    for head in range(batch * heads):
        shared = head // group
        row = lambda t, h, i: t.values[(h * t.shape[2] + i) * dim:(h * t.shape[2] + i + 1) * dim]
        for i in range(queries):
            seen = range(min(keys, i + 1)) if is_causal else range(keys)
            query = row(q, head, i)
            scores = [sum(a * b for a, b in zip(query, row(k, shared, j))) / math.sqrt(dim) for j in seen]
            weights = [math.exp(s - max(scores)) for s in scores]
            for d in range(dim):
                out.append(sum(w * v.values[(shared * keys + j) * dim + d] for j, w in zip(seen, weights)) / sum(weights))
    return out


def launch(q, k, v, is_causal):
    assert cuda.captured is not None or cuda.streams
    out = Tensor([0.0] * len(q.values), q.shape, q.dtype)
    out.on_gpu = True

    def call():
        out.values[:] = array.array("f", attention(q, k, v, is_causal))

    if cuda.captured is None:
        call()
    else:
        # Consecutive launches use different copies of the inputs, and all copies are equal.
        if cuda.captured:
            assert q is not cuda.last and q.values == cuda.last.values
        cuda.last = q
        cuda.captured.append(call)
    return out


sys.modules["torch.cuda"] = cuda
print("the fake PyTorch prints to standard output", os.getpid())
