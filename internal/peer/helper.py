# attune runs this program with python3 on standard input. It reads requests on descriptor 3 and writes
# responses to descriptor 4, one line of JSON each. It needs Python 3.9 and, for everything but an error
# in response to "hello", PyTorch with CUDA.
import contextlib
import ctypes
import gc
import importlib.machinery
import importlib.util
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

# The number formats of kernel.toml, and integers of the same size to compare and overwrite bits.
DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn",
          "e5m2": "float8_e5m2", "i8": "int8", "u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}
BITS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}

torch = None
jobs = {}
modules = {}  # of functions, by path
inputs, loaded = 0, {}  # the version of the input files, and their contents by path


class Refused(Exception):
    """A request that cannot be served: the reason and the remedy."""

    def __init__(self, why, do=""):
        super().__init__(why)
        self.why, self.do = why, do


class Broken(Refused):
    """A refusal that leaves the process in a state that no other peer can use."""


def describe(error, path=""):
    """The type of an error and the first line of its message, with the line of the user's file at path."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = type(error).__name__ + (": " + lines[0] if lines else "")
    number, frame = 0, error.__traceback__
    if path and isinstance(error, SyntaxError) and error.filename == path:
        text, number = "%s: %s" % (type(error).__name__, error.msg), error.lineno
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == path:
            number = frame.tb_lineno
        frame = frame.tb_next
    return text + (" (line %d)" % number if number else "")


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
    """A peer on one problem: a captured graph of equal launches, and the outputs of the last launch.

    The launches rotate through copies of the inputs.
    """

    def __init__(self, request):
        self.launches = request["launches"]
        self.stream = torch.cuda.Stream()
        self.start, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.no_grad():
            self.set_up(request)

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


class Attention(Job):
    """A library's attention."""

    def set_up(self, request):
        batch, heads, queries, keys, dim = request["shape"]
        self.rows_first = request["peer"] == FLASH3  # its tensors are [batch, row, head, dim]
        shared = (batch, request["kv_heads"], keys, dim)
        shapes = {"q": (batch, heads, queries, dim), "k": shared, "v": shared}
        make = self.flash3 if self.rows_first else self.sdpa
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

    def output(self, files):
        """Writes the output of the graph that is timed, which it computes over NaN."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            self.out.fill_(float("nan"))
            self.graph.replay()
        self.stream.synchronize()
        out = self.out.transpose(1, 2) if self.rows_first else self.out
        out = out.float().contiguous().cpu()
        write(out, files["output"])
        return {"shape": list(out.shape)}


class Function(Job):
    """A function f(axes, inputs) of the user's file, which computes a declared problem."""

    def set_up(self, request):
        self.path, self.axes, self.wanted = request["file"], request.get("axes", {}), request["outputs"]
        self.call = find_function(self.path, request["function"])
        self.types = [dtype(a["dtype"]) for a in self.wanted]
        arrays = request.get("arrays", [])
        self.inputs = [{a["name"]: device_array(a) for a in arrays} for _ in range(request["copies"])]
        torch.cuda.synchronize()  # the default stream has loaded the inputs
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(FIRST_CALLS):
                    self.launch(0)
            self.stream.synchronize()
        except Refused:
            raise
        except (Exception, SystemExit) as error:
            raise Refused(self.describe(error))
        self.check_inputs(arrays)
        self.capture()

    def describe(self, error):
        return describe(error, self.path)

    def launch(self, copy):
        """Calls the function on a copy of the inputs. It gets dicts of its own, which it may change."""
        return self.check(self.call(dict(self.axes), dict(self.inputs[copy])))

    def check(self, returned):
        """The outputs in their order, without a look at the values, which a capture does not allow."""
        names = [a["name"] for a in self.wanted]
        if isinstance(returned, torch.Tensor) and len(names) == 1:
            returned = {names[0]: returned}
        if not isinstance(returned, dict):
            kind = "nothing" if returned is None else "a " + type(returned).__name__
            raise Refused("returned %s; want a dict of tensors: %s" % (kind, ", ".join(names)))
        for name in returned:
            if name not in names:
                raise Refused('returned "%s", which is no output; there are %s' % (name, ", ".join(names)))
        for a, declared in zip(self.wanted, self.types):
            if a["name"] not in returned:
                raise Refused('returned no "%s"' % a["name"])
            self.check_output(a, declared, returned[a["name"]])
        return [returned[name] for name in names]

    def check_output(self, a, declared, out):
        name = a["name"]
        if not isinstance(out, torch.Tensor):
            raise Refused('"%s" is a %s; want a tensor' % (name, type(out).__name__))
        if not out.is_cuda:
            raise Refused('"%s" is not on the GPU' % name)
        if list(out.shape) != a["shape"]:
            raise Refused('"%s" has shape %s; kernel.toml declares %s' % (name, tuple(out.shape), tuple(a["shape"])))
        integers = not (declared.is_floating_point or out.dtype.is_floating_point or out.dtype.is_complex)
        if out.dtype != declared and not integers:
            raise Refused('"%s" has type %s; kernel.toml declares %s' % (name, out.dtype, declared),
                          "convert it in the function")
        for inputs in self.inputs:
            for other, x in inputs.items():
                if x.data_ptr() == out.data_ptr():
                    raise Refused('"%s" is in the memory of its input "%s"' % (name, other), "return a new tensor")

    def check_inputs(self, arrays):
        """Refuses a function that changes its inputs: launches would compute different problems."""
        for a in arrays:
            now, then = bits(self.inputs[0][a["name"]]).cpu(), bits(host_array(a))
            if not torch.equal(now, then):
                raise Refused('it changes its input "%s"' % a["name"], "return a new tensor")

    def capture(self):
        """Captures the launches. Every copy of the inputs has an output of its own, as attune's copies have."""
        self.graph, cause = torch.cuda.CUDAGraph(), None
        outs = [None] * len(self.inputs)
        try:
            with torch.cuda.graph(self.graph, stream=self.stream):
                try:
                    for i in range(self.launches):
                        copy = i % len(outs)
                        outs[copy] = None  # its memory is that of the next output
                        outs[copy] = self.launch(copy)
                except (Exception, SystemExit) as error:
                    cause = error  # the end of a failed capture raises another one
                    raise
            torch.cuda.synchronize()
        except (Exception, SystemExit) as error:
            raise Broken("cannot be captured as a CUDA graph: " + self.describe(cause or error))
        self.outs = outs[copy]

    def output(self, files):
        """Writes the outputs of the graph that is timed, which it computes over bytes of 255."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            for out in self.outs:
                bits(out).fill_(-1)
            self.graph.replay()
        self.stream.synchronize()
        written = []
        for a, declared, out in zip(self.wanted, self.types, self.outs):
            out, kind = out.contiguous().cpu(), a["dtype"]
            if out.dtype != declared:
                out, kind = out.to(torch.int64), "i64"
            write(out, next(f["file"] for f in files if f["name"] == a["name"]))
            written.append({"name": a["name"], "dtype": kind, "shape": list(out.shape)})
        return {"outputs": written}


def find_function(path, name):
    """A function of a file. The modules beside the file can be imported, as from a script."""
    file = os.path.basename(path)
    if path not in modules:
        sys.path.insert(0, os.path.dirname(path))
        stem = os.path.splitext(file)[0]
        stem = "attune_" + stem if stem in sys.modules else stem
        loader = importlib.machinery.SourceFileLoader(stem, path)  # whatever the extension is
        specification = importlib.util.spec_from_file_location(stem, path, loader=loader)
        module = sys.modules[stem] = importlib.util.module_from_spec(specification)
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[stem]
            missing = error.name if isinstance(error, ModuleNotFoundError) else ""
            do = "%s -m pip install %s" % (sys.executable, missing.split(".")[0]) if missing else ""
            raise Refused("%s: %s" % (file, describe(error, path)), do)
        modules[path] = module
    function = getattr(modules[path], name, None)
    if not callable(function):
        raise Refused("%s defines no function %s(axes, inputs)" % (file, name))
    return function


def dtype(name):
    found = getattr(torch, DTYPES[name], None)
    if found is None:
        raise Refused("PyTorch %s has no type %s" % (torch.__version__, DTYPES[name]),
                      sys.executable + " -m pip install --upgrade torch")
    return found


def host_array(a):
    return load(a["file"], torch.uint8).view(dtype(a["dtype"])).reshape(a["shape"])


def device_array(a):
    return host_array(a).cuda()


def bits(tensor):
    """A view of the elements as integers: NaN equals itself there."""
    return tensor.view(getattr(torch, BITS[tensor.element_size()]))


def write(tensor, path):
    with open(path, "wb") as file:
        file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))


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
    jobs.pop(key(request), None)
    if request["inputs"] != inputs:
        loaded.clear()
        inputs = request["inputs"]
    jobs[key(request)] = Function(request) if "function" in request else Attention(request)
    return {}


def key(request):
    return request["peer"], request.get("dtype", "")


def output(request):
    return jobs[key(request)].output(request.get("files") or request["outputs"])


def sample(request):
    return {"seconds": jobs[key(request)].sample(
        request["samples"], request.get("rest", 0), request.get("load", 0))}


def energy(request):
    return {"joules": jobs[key(request)].energy()}


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
    except Exception as error:
        refused = error if isinstance(error, Refused) else Refused(describe(error))
    if isinstance(refused, Broken) or request["op"] != "hello" and broken():
        return {"broken": refused.why}
    return {"error": refused.why, "do": refused.do}


def broken():
    """Whether the GPU context has ended. It repeats the error of the kernel that ended it."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


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
