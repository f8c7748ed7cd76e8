"""A fake of the part of PyTorch that the helper and the functions of peers.py use.

What is as in PyTorch: tensors have a type, a shape and memory of their own; an operation while a graph is
captured computes nothing and is repeated by each replay; a read of a value during a capture fails and spoils the
capture; after a fault of a kernel every call fails.
What is not: there is no GPU, tensors have no strides, streams do nothing, and only sums are computed.
"""
import contextlib
import ctypes
import struct
import time

__version__ = "2.11.0"


class dtype:
    is_complex = False

    def __init__(self, name, code, is_floating_point):
        self.name, self.code, self.is_floating_point = name, code, is_floating_point
        self.itemsize = struct.calcsize(code)

    def __repr__(self):
        return "torch." + self.name


float64, float32, float16 = dtype("float64", "d", True), dtype("float32", "f", True), dtype("float16", "e", True)
bfloat16, float8_e4m3fn = dtype("bfloat16", "H", True), dtype("float8_e4m3fn", "B", True)
float8_e5m2 = dtype("float8_e5m2", "B", True)
int8, uint8, int16 = dtype("int8", "b", False), dtype("uint8", "B", False), dtype("int16", "h", False)
int32, int64 = dtype("int32", "i", False), dtype("int64", "q", False)  # a release without uint32 and uint64


class version:
    cuda = "13.0"


class backends:
    class cudnn:
        @staticmethod
        def is_available():
            return False


class Tensor:
    def __init__(self, memory, shape, kind, is_cuda):
        self.memory, self.shape, self.dtype, self.is_cuda = memory, tuple(shape), kind, is_cuda

    def view(self, kind):
        assert kind.itemsize == self.dtype.itemsize or self.shape == (len(self.memory),)
        shape = self.shape if kind.itemsize == self.dtype.itemsize else (len(self.memory) // kind.itemsize,)
        return Tensor(self.memory, shape, kind, self.is_cuda)

    def reshape(self, shape):
        return Tensor(self.memory, shape, self.dtype, self.is_cuda)

    def cuda(self):
        return Tensor(bytearray(self.memory), self.shape, self.dtype, True)

    def cpu(self):
        check()
        return Tensor(bytearray(self.memory), self.shape, self.dtype, False)

    def contiguous(self):
        return self

    def values(self):
        return struct.unpack("<%d%s" % (self.numel(), self.dtype.code), self.memory)

    def store(self, values):
        self.memory[:] = struct.pack("<%d%s" % (self.numel(), self.dtype.code), *values)

    def to(self, kind):
        def convert(out):
            out.store([kind.code in "def" and float(x) or int(x) for x in self.values()])
        return compute(self.shape, kind, convert, self.is_cuda)

    def __add__(self, other):
        add = (lambda: other.values()) if isinstance(other, Tensor) else (lambda: [other] * self.numel())
        return compute(self.shape, self.dtype, lambda out: out.store([a + b for a, b in zip(self.values(), add())]))

    def add_(self, number):
        self.store([x + number for x in self.values()])
        return self

    def fill_(self, value):
        check()
        self.store([value] * self.numel())

    def item(self):
        if cuda.captured is not None:
            cuda.spoiled = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nSearch for `cudaError`")
        return self.values()[0]

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def numel(self):
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def element_size(self):
        return self.dtype.itemsize


def compute(shape, kind, write, is_cuda=True):
    """A new tensor, which write fills now or when a captured graph is replayed."""
    n = 1
    for extent in shape:
        n *= extent
    out = Tensor(bytearray(n * kind.itemsize), shape, kind, is_cuda)
    if cuda.captured is None or not is_cuda:
        write(out)
    else:
        cuda.captured.append(lambda: write(out))
    return out


def frombuffer(data, dtype):
    assert dtype is uint8
    return Tensor(data, (len(data),), dtype, False)


def zeros(shape, dtype):
    return compute(shape, dtype, lambda out: out.store([0] * out.numel()))


def equal(a, b):
    assert not a.is_cuda and not b.is_cuda and a.dtype is b.dtype
    return a.shape == b.shape and a.memory == b.memory


def check():
    if cuda.faulty:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


@contextlib.contextmanager
def no_grad():
    yield


class cuda:
    captured = None  # the work of the graph that is being captured
    spoiled = faulty = False

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            self.at = time.perf_counter()

        def synchronize(self):
            check()

        def elapsed_time(self, end):
            return (end.at - self.at) * 1e3

    class Stream:
        def synchronize(self):
            check()

    class CUDAGraph:
        def replay(self):
            for call in self.work:
                call()

    @staticmethod
    @contextlib.contextmanager
    def stream(stream):
        yield

    @staticmethod
    @contextlib.contextmanager
    def graph(graph, stream):
        cuda.captured = []
        try:
            yield
        finally:
            graph.work, cuda.captured = cuda.captured, None
            if cuda.spoiled:
                cuda.spoiled = False
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    @staticmethod
    def fault():
        """What a kernel does that reads beyond its memory."""
        cuda.faulty = True

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def device_count():
        return 1

    @staticmethod
    def set_device(index):
        pass

    @staticmethod
    def synchronize():
        check()

    @staticmethod
    def empty_cache():
        pass

    @staticmethod
    def get_device_properties(index):
        class properties:
            name = "A fake GPU"
            uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
        return properties
