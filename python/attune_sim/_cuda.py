"""The device "cuda" of PyTorch as memory of the host, for scripts and tests that name it."""

import contextlib
import os
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

_CUDA = torch.device("cuda", 0)
_HOST = torch.device("cpu")
_MARK = "_attune_host"  # the attribute of tensors that are on the CPU for the program too
_EMPTY = "_attune_empty"  # that of tensors which nothing has written


class Event:
    def __init__(self, *args: Any, **options: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """In milliseconds of the simulation."""
        return (end._time - self._time) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass


class Stream:
    """Work runs when it is enqueued."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *problem: Any) -> None:
        pass


class _Scope(contextlib.AbstractContextManager[None]):
    """A context that chooses a device or a stream: there is one of each."""

    def __init__(self, *args: Any) -> None:
        pass

    def __exit__(self, *problem: Any) -> None:
        pass


class Generator(torch.Generator):
    """Random numbers of the CPU, which differ from those of a GPU."""

    def __new__(cls, device: Any = None) -> "Generator":
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:
        return _CUDA


class Device:
    """What takes the place of torch.cuda's functions. Triton measures times with it too."""

    Event = Event
    Stream = Stream
    ExternalStream = Stream
    StreamContext = _Scope
    device = _Scope
    device_of = _Scope
    stream = _Scope

    arch = "sm_90a"

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def current_stream(device: Any = None) -> Stream:
        return Stream()

    @staticmethod
    def default_stream(device: Any = None) -> Stream:
        return Stream()

    @classmethod
    def number(cls) -> int:
        """That of the architecture, such as 90."""
        return int("".join(c for c in cls.arch if c.isdigit()))

    @classmethod
    def get_device_capability(cls, device: Any = None) -> tuple[int, int]:
        return divmod(cls.number(), 10)

    @classmethod
    def get_device_name(cls, device: Any = None) -> str:
        return f"attune simulator ({cls.arch})"

    @classmethod
    def get_device_properties(cls, device: Any = None) -> types.SimpleNamespace:
        major, minor = cls.get_device_capability()
        return types.SimpleNamespace(
            name=cls.get_device_name(),
            major=major,
            minor=minor,
            multi_processor_count=132,
            warp_size=32,
            max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536,
            shared_memory_per_block=48 << 10,
            shared_memory_per_block_optin=227 << 10,
            shared_memory_per_multiprocessor=228 << 10,
            total_memory=80 << 30,
            L2_cache_size=50 << 20,
        )

    @staticmethod
    def mem_get_info(device: Any = None) -> tuple[int, int]:
        return 80 << 30, 80 << 30

    @staticmethod
    def is_bf16_supported(*args: Any, **options: Any) -> bool:
        return True

    @staticmethod
    def is_current_stream_capturing() -> bool:
        return False

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        torch.default_generator.manual_seed(seed)


def _stand_in(result: Any) -> Any:
    def stand_in(*args: Any, **options: Any) -> Any:
        return result

    return staticmethod(stand_in)


# A function for each name: torch._dynamo refuses a function with two.
for _name in ("init", "_lazy_init", "set_device", "set_stream", "synchronize", "empty_cache", "ipc_collect"):
    setattr(Device, _name, _stand_in(None))
for _name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats"):
    setattr(Device, _name, _stand_in(None))
for _name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
    setattr(Device, _name, _stand_in(0))


def _is_cuda(device: Any) -> bool:
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    return device is not None and torch.device(device).type == "cuda"


def _names_device(value: Any) -> bool:
    if isinstance(value, torch.device):
        return True
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


class CudaOnHost(TorchFunctionMode):
    """Makes tensors of the device cuda on the CPU. They say cuda; those that the program makes on the CPU say cpu."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0  # in progress: PyTorch runs them without the mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        try:
            return self._call(func, args, kwargs)
        finally:
            self.calls -= 1

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        kwargs = dict(kwargs or {})
        special = _SPECIAL.get(func)
        if special is not None:
            if special not in _KEEP_EMPTY:
                _fill(args)
            return special(func, *args, **kwargs)
        if func is torch.Tensor.__repr__ or getattr(func, "__name__", "") == "__get__":
            result = func(*args, **kwargs)  # an attribute, such as T, grad or data
            if isinstance(result, torch.Tensor):
                _fill(args)
            return _marked(result, all(map(_on_host, _tensors(args))))
        inputs = list(_tensors(args)) + list(_tensors(kwargs))
        if func not in _FACTS:
            _fill(inputs)
        on_host = all(map(_on_host, inputs))
        if "device" in kwargs or not inputs and func not in _WITHOUT_DEVICE:
            device = kwargs.get("device")
            device = torch.get_default_device() if device is None and not inputs else device
            if device is not None:
                on_host = not _is_cuda(device)
                if not on_host:
                    kwargs["device"] = _HOST
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = _marked(func(*args, **kwargs), on_host)
        if func in _MAKES_EMPTY and isinstance(result, torch.Tensor):
            setattr(result, _EMPTY, True)
        return result


def is_empty(tensor: torch.Tensor) -> bool:
    """Whether the program has made a tensor and written nothing to it. A launch writes it."""
    empty = getattr(tensor, _EMPTY, False)
    _fill(tensor)
    return empty


def _fill(tensors: Any) -> None:
    """Notes that a function has tensors, which it may write or make views of."""
    for tensor in _tensors(tensors):
        if hasattr(tensor, _EMPTY):
            delattr(tensor, _EMPTY)


def _on_host(tensor: torch.Tensor) -> bool:
    return getattr(tensor, _MARK, False)


def _marked(result: Any, on_host: bool) -> Any:
    if on_host:
        for tensor in _tensors(result):
            setattr(tensor, _MARK, True)
    return result


def _to(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Tensor.to, which copies between the two devices, as a GPU does."""
    values, to_cuda = list(args), not _on_host(tensor)
    named = kwargs.get("device")
    if values and (_names_device(values[0]) or isinstance(values[0], int)):
        named, values[0] = values[0], _HOST
    elif values and isinstance(values[0], torch.Tensor):
        to_cuda = not _on_host(values[0])
    elif named is not None:
        kwargs["device"] = _HOST
    if named is not None:
        to_cuda = _is_cuda(named)
    result = func(tensor, *values, **kwargs)
    return _moved(tensor, result, to_cuda)


def _moved(tensor: torch.Tensor, result: torch.Tensor, to_cuda: bool) -> torch.Tensor:
    if to_cuda == _on_host(tensor) and result.data_ptr() == tensor.data_ptr():
        result = result.clone()
    elif result is tensor:
        return result
    return _marked(result, not to_cuda)


def _cuda(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _moved(tensor, tensor, True)


def _cpu(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _moved(tensor, tensor, False)


def _pinned(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor


def _device(func: Any, tensor: torch.Tensor) -> torch.device:
    found: torch.device = func(tensor)
    return found if found.type != "cpu" or _on_host(tensor) else _CUDA


def _says_cuda(func: Any, tensor: torch.Tensor) -> bool:
    return not _on_host(tensor)


def _get_device(func: Any, tensor: torch.Tensor) -> int:
    return -1 if _on_host(tensor) else 0


_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.pin_memory: _pinned,
    torch.Tensor.device.__get__: _device,
    torch.Tensor.is_cuda.__get__: _says_cuda,
    torch.Tensor.is_cpu.__get__: lambda func, tensor: _on_host(tensor),
    torch.Tensor.get_device: _get_device,
    torch.get_device: _get_device,
}
_KEEP_EMPTY = (_device, _says_cuda, _get_device)
_MAKES_EMPTY = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}
# Functions that neither read nor write elements, nor make views.
_FACTS = _MAKES_EMPTY | {
    torch.Tensor.data_ptr,
    torch.Tensor.dim,
    torch.Tensor.element_size,
    torch.Tensor.is_contiguous,
    torch.Tensor.nelement,
    torch.Tensor.numel,
    torch.Tensor.size,
    torch.Tensor.storage_offset,
    torch.Tensor.stride,
    torch.Tensor.__hash__,
    torch.Tensor.__len__,
    torch.zeros_like,
    torch.ones_like,
    torch.rand_like,
    torch.randn_like,
    torch.numel,
}
# Functions without tensors that take no device.
_WITHOUT_DEVICE = {
    torch.get_default_device,
    torch.promote_types,
    torch.result_type,
    torch.can_cast,
    torch.is_grad_enabled,
    torch.set_grad_enabled,
    torch.manual_seed,
    torch.seed,
    torch.broadcast_shapes,
}


def _in_float32(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that sums in float32 on GPUs, and in the type of its inputs on CPUs."""
    kinds = [t.dtype for t in _tensors([args, kwargs]) if t.dtype in (torch.float16, torch.bfloat16)]
    on_host = all(map(_on_host, _tensors([args, kwargs])))
    if not kinds:
        return _marked(func(*args, **kwargs), on_host)
    wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
    named = {name: a.float() if isinstance(a, torch.Tensor) else a for name, a in kwargs.items()}
    return _marked(func(*wide, **named).to(kinds[0]), on_host)


_SPECIAL |= {f: _in_float32 for f in (torch.nn.functional.layer_norm, torch.layer_norm, torch.nn.functional.group_norm)}


_DISABLE = "TORCHDYNAMO_DISABLE"


class Mapping:
    """The mapping of cuda to the host, from start to end. It holds in the thread that starts it."""

    def __init__(self) -> None:
        self.is_on = False
        self._mode = CudaOnHost()
        self._saved: list[tuple[Any, str, Any]] = []
        self._dynamo: Optional[str] = None  # the value of _DISABLE before

    def start(self) -> None:
        if self.is_on:
            return
        self.is_on, self._mode = True, CudaOnHost()
        self._dynamo = os.environ.get(_DISABLE)
        os.environ[_DISABLE] = "1"  # what torch.compile makes for GPUs cannot run
        for name in list(vars(Device)):
            if hasattr(torch.cuda, name) and not name.startswith("__"):
                self._replace(torch.cuda, name, getattr(Device, name))
        from_numpy = torch.from_numpy  # the mode does not see it
        self._replace(torch, "from_numpy", lambda array: _marked(from_numpy(array), True))
        self._replace(torch, "Generator", Generator)
        # Tensor.backward is such a call, and calls functions of the program.
        self._replace(torch.autograd, "_engine_run_backward", self._with_mode(torch.autograd._engine_run_backward))
        self._mode.__enter__()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _with_mode(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            with CudaOnHost() if self._mode.calls else contextlib.nullcontext():
                return run(*args, **options)

        return wrapped

    def end(self) -> None:
        if not self.is_on:
            return
        self.is_on = False
        if self._dynamo is None:
            del os.environ[_DISABLE]
        else:
            os.environ[_DISABLE] = self._dynamo
        self._mode.__exit__(None, None, None)
        for owner, name, value in reversed(self._saved):
            setattr(owner, name, value)
        self._saved.clear()


mapping = Mapping()
