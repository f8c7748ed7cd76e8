# attune gives this program to python3 on standard input. Requests come on descriptor 3 and answers go to descriptor 4, one line of JSON each.
# It needs Python 3.9 and, for everything but the first answer, PyTorch with CUDA.
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
FIRST_CALLS = 3  # before a graph is captured: they load code and let libraries choose

# Samples are taken as attune takes its own: after a warm-up that lasts until the medians of two windows agree, each right after a replay that is not looked
# at, so that nothing waits for this program between the events.
WINDOW_SECONDS, WINDOW_REPLAYS = 25e-3, 3
STABLE_SHARE, MOST_WARM_SECONDS = 0.005, 1.0
LONG_SECONDS = 20e-3  # a replay so long needs no other before it

torch = None
jobs = {}
inputs, loaded = 0, {}  # the number of the inputs in the files, and what was read of them, by path


class Refused(Exception):
    """What cannot be done, and the way out."""

    def __init__(self, why, do=""):
        super().__init__(why)
        self.why, self.do = why, do


def words(error):
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
        raise Refused("PyTorch cannot be imported: " + words(error), install)
    except Exception as error:
        raise Refused("PyTorch cannot be imported: " + words(error), "see what `%s -c 'import torch'` says" % sys.executable)
    torch = found
    if not torch.version.cuda:
        raise Refused("PyTorch %s is built without CUDA" % torch.__version__, "install one that is built with it: " + install)
    if not torch.cuda.is_available():
        raise Refused("PyTorch %s, built for CUDA %s, sees no GPU" % (torch.__version__, torch.version.cuda),
                      "see what `%s -c 'import torch; torch.cuda.init()'` says; the driver may be older than this CUDA" % sys.executable)
    count = torch.cuda.device_count()
    if request["device"] >= count:
        raise Refused("PyTorch sees %d GPUs, and none of the number %d" % (count, request["device"]), "take another --device")
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
    """Which peers this Python has not, and why."""
    reasons = {}
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: F401
        for name, backend in BACKENDS.items():
            if not hasattr(SDPBackend, backend):
                reasons[name] = "PyTorch %s has no SDPBackend.%s" % (torch.__version__, backend)
    except ImportError:
        for name in BACKENDS:
            reasons[name] = "PyTorch %s has no torch.nn.attention.sdpa_kernel to choose a backend with" % torch.__version__
    try:
        import flash_attn_interface  # noqa: F401
    except Exception as error:
        reasons[FLASH3] = "flash_attn_interface cannot be imported: " + words(error)
    return reasons


class Job:
    """A peer on one problem: a captured graph of equal launches, which take copies of the inputs in turns, and the output that the last one writes."""

    def __init__(self, request):
        batch, heads, queries, keys, dim = request["shape"]
        self.launches = request["launches"]
        self.stream = torch.cuda.Stream()
        self.start, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.turned = request["peer"] == FLASH3  # its tensors are [batch, row, head, dim]
        shared = (batch, request["kv_heads"], keys, dim)
        shapes = {"q": (batch, heads, queries, dim), "k": shared, "v": shared}
        make = self.flash3 if self.turned else self.sdpa
        with torch.no_grad():
            copy, chosen = make(request, shapes)
            self.calls = [copy() for _ in range(request["copies"])]  # kept, because they hold the inputs that the graph reads
            self.capture(chosen)

    def sdpa(self, request, shapes):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention
        kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[request["dtype"]]
        backend = getattr(SDPBackend, BACKENDS[request["peer"]])
        options = {"is_causal": request["causal"]}
        if shapes["k"][1] != shapes["q"][1]:
            options["enable_gqa"] = True  # a backend that cannot share K and V among heads refuses

        def copy():
            q, k, v = (load(request["files"][n], torch.float32).reshape(shapes[n]).cuda().to(kind).contiguous() for n in "qkv")
            return lambda: scaled_dot_product_attention(q, k, v, **options)

        return copy, lambda: sdpa_kernel(backend)

    def flash3(self, request, shapes):
        from flash_attn_interface import flash_attn_func
        files = request["files"]

        def codes(name):
            turned = load(files[name + "_codes"], torch.uint8).reshape(shapes[name]).cuda().transpose(1, 2).contiguous()
            return turned.view(torch.float8_e4m3fn)

        causal = request["causal"]

        def copy():
            q, k, v = codes("q"), codes("k"), codes("v")
            scales = {n + "_descale": load(files[n + "_descale"], torch.float32).reshape(shapes[n][:2]).cuda() for n in "qkv"}

            def call():
                out = flash_attn_func(q, k, v, causal=causal, **scales)
                return out[0] if isinstance(out, tuple) else out

            return call

        return copy, contextlib.nullcontext

    def capture(self, chosen):
        # What was loaded on the default stream must be there before the first call on this one.
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                with torch.cuda.stream(self.stream), chosen():
                    for _ in range(FIRST_CALLS):
                        self.out = self.calls[0]()
                self.stream.synchronize()
            except RuntimeError as error:
                # PyTorch says as warnings why a backend will not have a problem.
                reasons = [str(w.message).split(" (Triggered internally")[0].strip() for w in said]
                raise Refused(" ".join([words(error)] + reasons))
        self.out = None
        self.graph = torch.cuda.CUDAGraph()
        with chosen(), torch.cuda.graph(self.graph, stream=self.stream):
            for i in range(self.launches):
                self.out = self.calls[i % len(self.calls)]()
        torch.cuda.synchronize()

    def answer(self):
        """What the graph that is timed writes, over an output that holds no answer."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            self.out.fill_(float("nan"))
            self.graph.replay()
        self.stream.synchronize()
        out = self.out.transpose(1, 2) if self.turned else self.out
        return out.float().contiguous().cpu()

    def sample(self, samples, rest):
        start, end, replay, stream = self.start, self.end, self.graph.replay, self.stream

        def once(lead=False):
            if lead:
                replay()
            start.record(stream)
            replay()
            end.record(stream)
            end.synchronize()
            seconds = start.elapsed_time(end) / 1e3
            if not seconds > 0:
                raise Refused("the events around a replay say %r s" % seconds)
            return seconds

        gc.disable()
        try:
            with torch.cuda.stream(stream):
                lead = warm_up(once) < LONG_SECONDS
                seconds = []
                for _ in range(samples):
                    time.sleep(rest)
                    seconds.append(once(lead) / self.launches)
                return seconds
        finally:
            gc.enable()


def warm_up(once):
    """Replays until the times stand still, and gives the last of their medians."""
    spent, before = 0.0, None
    while True:
        window = []
        while sum(window) < WINDOW_SECONDS or len(window) < WINDOW_REPLAYS:
            window.append(once())
        spent += sum(window)
        now = sorted(window)[len(window) // 2]
        if before is not None and (abs(now - before) <= STABLE_SHARE * before or spent >= MOST_WARM_SECONDS):
            return now
        before = now


def load(path, dtype):
    """What a file of inputs holds. All peers on a problem get it from the same memory, which nobody writes to."""
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


def answer(request):
    out = jobs[request["peer"], request["dtype"]].answer()
    with open(request["files"]["output"], "wb") as file:
        file.write(ctypes.string_at(out.data_ptr(), out.numel() * 4))
    return {"shape": list(out.shape)}


def sample(request):
    return {"seconds": jobs[request["peer"], request["dtype"]].sample(request["samples"], request.get("rest", 0))}


def forget(request):
    jobs.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return {}


OPERATIONS = {"hello": hello, "prepare": prepare, "answer": answer, "sample": sample, "forget": forget}


def respond(request):
    try:
        return OPERATIONS[request["op"]](request)
    except Refused as refused:
        return {"error": refused.why, "do": refused.do}
    except Exception as error:
        return {"error": words(error)}


def listen(lines, pending):
    """Passes requests on. Whoever asks no more is gone, and then nothing is worth finishing."""
    for line in lines:
        pending.put(json.loads(line))
    os._exit(0)


def main():
    pending = queue.Queue()
    lines = os.fdopen(3, "r", encoding="utf-8")
    threading.Thread(target=listen, args=(lines, pending), daemon=True).start()
    with os.fdopen(4, "w", encoding="utf-8") as answers:
        while True:
            request = pending.get()
            response = respond(request)
            response["id"] = request["id"]
            answers.write(json.dumps(response) + "\n")
            answers.flush()


main()
