# attune runs this program with python3 on standard input. It reads requests on descriptor 3 and writes
# responses to descriptor 4, one line of JSON each. It needs Python 3.9 and, for everything but an error
# in response to "hello", PyTorch with CUDA.
import contextlib
import ctypes
import gc
import json
import os
import platform
import queue
import sys
import threading
import time
import warnings

BACKENDS = {
    "torch-flash": "FLASH_ATTENTION",
    "torch-cudnn": "CUDNN_ATTENTION",
    "torch-efficient": "EFFICIENT_ATTENTION",
    "torch-math": "MATH",
}
FLASH3 = "fa3-fp8"
FIRST_CALLS = 3  # before the capture: libraries load code and select algorithms

# The sampling is that of attune's own kernels (internal/device/cuda/time.go): a warm-up until the
# medians of two consecutive windows agree, then samples, each right after a lead-in replay, so that the
# GPU does not wait for the host between the events.
WINDOW_SECONDS, WINDOW_REPLAYS = 25e-3, 3
STABLE_SHARE, MAX_WARM_SECONDS = 0.005, 1.0
LONG_SECONDS = 20e-3  # a replay of this length needs no lead-in
ENERGY_SECONDS, ENERGY_BATCH, ENERGY_LIMIT = 0.95, 20e-3, 3.0

torch = None
jobs = {}
inputs, loaded = 0, {}  # the version of the input files, and their contents by path


class Refused(Exception):
    """A request that cannot be served: the reason and the remedy."""

    def __init__(self, why, do=""):
        super().__init__(why)
        self.why, self.do = why, do


def describe(error):
    """The type of an error and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return type(error).__name__ + (": " + lines[0] if lines else "")


def hello(request):
    global torch
    if sys.version_info < (3, 9):
        raise Refused("%s is Python %s" % (sys.executable, platform.python_version()), "name a Python 3.9 or later with --python")
    install = sys.executable + " -m pip install torch"
    try:
        import torch as found
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise Refused("%s (Python %s) has no PyTorch" % (sys.executable, platform.python_version()), install)
        raise Refused("PyTorch cannot be imported: " + describe(error), install)
    except Exception as error:
        raise Refused("PyTorch cannot be imported: " + describe(error), "see the output of `%s -c 'import torch'`" % sys.executable)
    torch = found
    if not torch.version.cuda:
        raise Refused("PyTorch %s is built without CUDA" % torch.__version__, "install a build with CUDA: " + install)
    if not torch.cuda.is_available():
        raise Refused("PyTorch %s, built for CUDA %s, sees no GPU" % (torch.__version__, torch.version.cuda),
                      "see the output of `%s -c 'import torch; torch.cuda.init()'`; "
                      "the driver may be too old for this CUDA" % sys.executable)
    count = torch.cuda.device_count()
    if request["device"] >= count:
        raise Refused("PyTorch sees %d GPUs, not number %d" % (count, request["device"]), "use another --device")
    torch.cuda.set_device(request["device"])
    properties = torch.cuda.get_device_properties(request["device"])
    return {"facts": {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "cudnn": cudnn_version(),
        "gpu": str(properties.name),
        "uuid": str(getattr(properties, "uuid", "")),
        "missing": missing(),
    }}


def cudnn_version():
    number = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    if not number:
        return ""
    if number >= 90000:
        return "%d.%d.%d" % (number // 10000, number // 100 % 100, number % 100)
    return "%d.%d.%d" % (number // 1000, number // 100 % 10, number % 100)


def missing():
    """The peers that this Python lacks, with the reasons."""
    reasons = {}
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: F401
        for name, backend in BACKENDS.items():
            if not hasattr(SDPBackend, backend):
                reasons[name] = "PyTorch %s has no SDPBackend.%s" % (torch.__version__, backend)
    except ImportError:
        for name in BACKENDS:
            reasons[name] = "PyTorch %s has no torch.nn.attention.sdpa_kernel to select a backend" % torch.__version__
    try:
        import flash_attn_interface  # noqa: F401
    except Exception as error:
        reasons[FLASH3] = "flash_attn_interface cannot be imported: " + describe(error)
    return reasons


class Job:
    """A peer on one problem: a captured graph of equal launches, and the output of the last launch.

    The launches rotate through copies of the inputs.
    """

    def __init__(self, request):
        batch, heads, queries, keys, dim = request["shape"]
        self.launches = request["launches"]
        self.stream = torch.cuda.Stream()
        self.start, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.rows_first = request["peer"] == FLASH3  # its tensors are [batch, row, head, dim]
        shared = (batch, request["kv_heads"], keys, dim)
        shapes = {"q": (batch, heads, queries, dim), "k": shared, "v": shared}
        make = self.flash3 if self.rows_first else self.sdpa
        with torch.no_grad():
            copy, backend = make(request, shapes)
            # The calls are kept, because they own the inputs that the graph reads.
            self.calls = [copy() for _ in range(request["copies"])]
            self.capture(backend)

    def sdpa(self, request, shapes):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention
        kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[request["dtype"]]
        backend = getattr(SDPBackend, BACKENDS[request["peer"]])
        options = {"is_causal": request["causal"]}
        if shapes["k"][1] != shapes["q"][1]:
            options["enable_gqa"] = True  # a backend without grouped heads raises an error

        def copy():
            q, k, v = (load(request["files"][n], torch.float32).reshape(shapes[n]).cuda().to(kind).contiguous()
                       for n in "qkv")
            return lambda: scaled_dot_product_attention(q, k, v, **options)

        return copy, lambda: sdpa_kernel(backend)

    def flash3(self, request, shapes):
        from flash_attn_interface import flash_attn_func
        files = request["files"]

        def codes(name):
            data = load(files[name + "_codes"], torch.uint8).reshape(shapes[name]).cuda()
            return data.transpose(1, 2).contiguous().view(torch.float8_e4m3fn)

        causal = request["causal"]

        def copy():
            q, k, v = codes("q"), codes("k"), codes("v")
            scales = {n + "_descale": load(files[n + "_descale"], torch.float32).reshape(shapes[n][:2]).cuda()
                      for n in "qkv"}

            def call():
                out = flash_attn_func(q, k, v, causal=causal, **scales)
                return out[0] if isinstance(out, tuple) else out

            return call

        return copy, contextlib.nullcontext

    def capture(self, backend):
        # The default stream must have loaded the inputs before the first call on this stream.
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with torch.cuda.stream(self.stream), backend():
                    for _ in range(FIRST_CALLS):
                        self.out = self.calls[0]()
                self.stream.synchronize()
            except RuntimeError as error:
                # PyTorch warns why a backend does not support a problem.
                reasons = [str(w.message).split(" (Triggered internally")[0].strip() for w in caught]
                raise Refused(" ".join([describe(error)] + reasons))
        self.out = None
        self.graph = torch.cuda.CUDAGraph()
        with backend(), torch.cuda.graph(self.graph, stream=self.stream):
            for i in range(self.launches):
                self.out = self.calls[i % len(self.calls)]()
        torch.cuda.synchronize()

    def output(self):
        """The output of the graph that is timed, written over NaN."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            self.out.fill_(float("nan"))
            self.graph.replay()
        self.stream.synchronize()
        out = self.out.transpose(1, 2) if self.rows_first else self.out
        return out.float().contiguous().cpu()

    def sample(self, samples, rest, load):
        start, end, replay, stream = self.start, self.end, self.graph.replay, self.stream

        def once(lead_in=False):
            if lead_in:
                replay()
            start.record(stream)
            replay()
            end.record(stream)
            end.synchronize()
            seconds = start.elapsed_time(end) / 1e3
            if not seconds > 0:
                raise Refused("the events measured %r s for a replay" % seconds)
            return seconds

        gc.disable()
        try:
            with torch.cuda.stream(stream):
                lead_in = warm_up(once) < LONG_SECONDS
                seconds = []
                for _ in range(samples):
                    time.sleep(rest)
                    busy = 0.0
                    while busy < load:
                        busy += 2 * once(lead_in=True)
                    seconds.append(once(lead_in) / self.launches)
                return seconds
        finally:
            gc.enable()

    def energy(self):
        """The joules of one launch, as of attune's own kernels (internal/device/cuda/energy.go)."""
        read = energy_counter()
        if read is None:
            return 0.0
        with torch.cuda.stream(self.stream):
            self.graph.replay()
            self.stream.synchronize()
            began = time.monotonic()
            self.graph.replay()
            self.stream.synchronize()
            batch = max(1, min(1000, int(ENERGY_BATCH / max(time.monotonic() - began, 1e-6))))
            first = last = read()
            changed = launches = 0
            began = time.monotonic()
            while time.monotonic() - began < ENERGY_LIMIT:
                for _ in range(batch):
                    self.graph.replay()
                now, joules = time.monotonic(), read()  # while the batch runs
                if joules != last:
                    last = joules
                    if not changed:
                        first, changed, launches = joules, now, 0
                    elif now - changed >= ENERGY_SECONDS:
                        return (joules - first) / launches
                self.stream.synchronize()
                launches += batch * self.launches
        return 0.0


def energy_counter():
    """A function that reads the GPU's energy counter in joules, or None without one."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        gpu, value = ctypes.c_void_p(), ctypes.c_ulonglong()
        uuid = "GPU-" + str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        codes = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(gpu)),
                 nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(value))]
    except (OSError, AttributeError):
        return None
    if any(codes):
        return None

    def read():
        nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(value))
        return value.value / 1e3

    return read


def warm_up(once):
    """Replays until the times reach a steady state, and returns the last median."""
    spent, before = 0.0, None
    while True:
        window = []
        while sum(window) < WINDOW_SECONDS or len(window) < WINDOW_REPLAYS:
            window.append(once())
        spent += sum(window)
        now = sorted(window)[len(window) // 2]
        if before is not None and (abs(now - before) <= STABLE_SHARE * before or spent >= MAX_WARM_SECONDS):
            return now
        before = now


def load(path, dtype):
    """The contents of an input file. All peers on a problem share this memory and only read it."""
    if path not in loaded:
        data = bytearray(os.path.getsize(path))
        with open(path, "rb") as file:
            file.readinto(data)
        loaded[path] = torch.frombuffer(data, dtype=dtype)
    return loaded[path]


def prepare(request):
    global inputs
    jobs.pop((request["peer"], request["dtype"]), None)
    if request["inputs"] != inputs:
        loaded.clear()
        inputs = request["inputs"]
    jobs[request["peer"], request["dtype"]] = Job(request)
    return {}


def output(request):
    out = jobs[request["peer"], request["dtype"]].output()
    with open(request["files"]["output"], "wb") as file:
        file.write(ctypes.string_at(out.data_ptr(), out.numel() * 4))
    return {"shape": list(out.shape)}


def sample(request):
    return {"seconds": jobs[request["peer"], request["dtype"]].sample(
        request["samples"], request.get("rest", 0), request.get("load", 0))}


def energy(request):
    return {"joules": jobs[request["peer"], request["dtype"]].energy()}


def release(request):
    jobs.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return {}


OPERATIONS = {"hello": hello, "prepare": prepare, "output": output, "sample": sample,
              "energy": energy, "release": release}


def respond(request):
    try:
        return OPERATIONS[request["op"]](request)
    except Refused as refused:
        return {"error": refused.why, "do": refused.do}
    except Exception as error:
        return {"error": describe(error)}


def listen(lines, pending):
    """Queues requests. The end of the pipe means that attune has exited, so the process exits at once."""
    for line in lines:
        pending.put(json.loads(line))
    os._exit(0)


def main():
    pending = queue.Queue()
    lines = os.fdopen(3, "r", encoding="utf-8")
    threading.Thread(target=listen, args=(lines, pending), daemon=True).start()
    with os.fdopen(4, "w", encoding="utf-8") as responses:
        while True:
            request = pending.get()
            response = respond(request)
            response["id"] = request["id"]
            responses.write(json.dumps(response) + "\n")
            responses.flush()


main()
