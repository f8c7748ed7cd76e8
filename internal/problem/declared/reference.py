# attune runs this program with python3 on standard input. It reads requests on descriptor 3 and
# writes responses to descriptor 4, one line of JSON each. It imports the module of a reference and
# calls its function. Arrays are in raw files.
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys

numpy = None
module = None
path = ""

FLOATS_OF_LIBRARIES = ("bfloat16", "float8")  # of ml_dtypes; numpy counts them as void


class Refused(Exception):
    """A request that cannot be served: the reason and the remedy."""

    def __init__(self, why, do=""):
        super().__init__(why)
        self.why, self.do = why, do


def describe(error):
    """The type of an error, the first line of its message and the line of the user's file."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:
        lines = []
    text = type(error).__name__ + (": " + lines[0] if lines else "")
    line = 0
    if isinstance(error, SyntaxError) and error.filename == path:
        text, line = "%s: %s" % (type(error).__name__, error.msg), error.lineno
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == path:
            line = frame.tb_lineno
        frame = frame.tb_next
    return text + (" (line %d)" % line if line else "")


def refuse(error):
    """What to respond to an exception of the user's code."""
    do = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        do = "%s -m pip install %s" % (sys.executable, error.name.split(".")[0])
    return Refused(describe(error), do)


def hello(request):
    global numpy, module, path
    if sys.version_info < (3, 9):
        version = sys.version.split()[0]
        raise Refused("%s is Python %s" % (sys.executable, version), "name a Python 3.9 or later with --python")
    path = request["path"]
    sys.path[0] = os.path.dirname(path)
    try:
        import numpy as found
    except ModuleNotFoundError as error:
        raise Refused(str(error), "`attune doctor --fix`, or %s -m pip install %s" % (sys.executable, error.name or "numpy"))
    except BaseException as error:
        do = sys.executable + " -m pip install --force-reinstall numpy"
        raise Refused("numpy does not load: " + describe(error), do)
    numpy = found
    name = os.path.splitext(os.path.basename(path))[0]
    loader = importlib.machinery.SourceFileLoader(name, path)  # whatever the extension is
    specification = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException as error:
        raise refuse(error)
    function = getattr(module, "reference", None)
    if not callable(function):
        raise Refused("it defines no function reference(axes, inputs)")
    if not accepts(function):
        count = len(inspect.signature(function).parameters)
        arguments = "%d argument%s" % (count, "" if count == 1 else "s")
        raise Refused("reference takes %s; want reference(axes, inputs)" % arguments)
    return {"python": sys.version.split()[0], "numpy": str(numpy.__version__), "files": local_modules()}


def local_modules():
    """The modules that the reference has imported from its folder."""
    folder = os.path.dirname(path) + os.sep
    files = [getattr(m, "__file__", None) or "" for m in list(sys.modules.values())]
    own = [f[len(folder) :] for f in files if f.startswith(folder) and f.endswith(".py")]
    return sorted(f for f in own if "site-packages" not in f)


def accepts(function):
    """Whether it can be called with axes and inputs."""
    try:
        inspect.signature(function).bind({}, {})
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True


def compute(request):
    inputs = {}
    for a in request["inputs"]:
        inputs[a["name"]] = numpy.fromfile(a["file"], dtype=a["dtype"]).reshape(a["shape"])
    try:
        returned = module.reference(dict(request["axes"]), inputs)
    except BaseException as error:
        raise refuse(error)
    names = [a["name"] for a in request["outputs"]]
    if not isinstance(returned, dict):
        kind = "nothing" if returned is None else "a " + type(returned).__name__
        raise Refused("returned %s; want a dict of arrays: %s" % (kind, ", ".join(names)))
    for name in returned:
        if name not in names:
            raise Refused('returned "%s", which is no output; there are %s' % (name, ", ".join(names)))
    outputs = []
    for a in request["outputs"]:
        if a["name"] not in returned:
            raise Refused('returned no "%s"' % a["name"])
        outputs.append(store(a, returned[a["name"]]))
    return {"outputs": outputs}


def store(a, value):
    """Writes an output to its file: integers as int64 or uint64, floats as float64."""
    try:
        value = numpy.asarray(value)
    except BaseException as error:
        raise Refused('"%s" is no array: %s' % (a["name"], describe(error)))
    kind = value.dtype.kind
    if kind == "V" and value.dtype.name.startswith(FLOATS_OF_LIBRARIES):
        kind = "f"
    dtype = {"b": "int64", "i": "int64", "u": "uint64", "f": "float64"}.get(kind)
    if dtype is None:
        raise Refused('"%s" has dtype %s; want a real number type' % (a["name"], value.dtype))
    if list(value.shape) != a["shape"]:
        shapes = (a["name"], value.shape, tuple(a["shape"]))
        raise Refused('"%s" has shape %s; kernel.toml declares %s' % shapes)
    numpy.ascontiguousarray(value, dtype=dtype).tofile(a["file"])
    own = value.dtype.name
    return {"name": a["name"], "dtype": dtype, "shape": list(value.shape), "returned": own, "bits": significand(value.dtype)}


def significand(dtype):
    """The bits of the significand of a float of numpy; 0 for other types."""
    return numpy.finfo(dtype).nmant + 1 if dtype.kind == "f" else 0


def main():
    for descriptor in (3, 4):
        os.set_inheritable(descriptor, False)
    requests = os.fdopen(3, "r", encoding="utf-8")
    responses = os.fdopen(4, "w", encoding="utf-8")
    for line in requests:
        request = json.loads(line)
        try:
            response = {"hello": hello, "compute": compute}[request["op"]](request)
        except Refused as refused:
            response = {"error": refused.why, "do": refused.do}
        except Exception as error:
            response = {"error": describe(error)}
        response["id"] = request["id"]
        responses.write(json.dumps(response) + "\n")
        responses.flush()


main()
