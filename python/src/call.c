/* attune._call: the functions of attune_sdpa on tensors of PyTorch.
 *
 * Each function takes the arguments of its Python function, looks at the tensors and calls the
 * library on the current stream. It returns None, and has done nothing, where something is not as
 * the library takes it. The caller then finds out what, in Python. So checks are repeated here in
 * their cheapest form, and messages are written only there.
 *
 * Tensors are read through the function table of DLPack that PyTorch 2.10 and later have, at some
 * 10 ns each. Earlier versions are read by their Python attributes. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <dlfcn.h>
#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "attune_sdpa.h"

/* ---- what PyTorch gives ---------------------------------------------------------------------- */

/* The part of dlpack.h that is used. */
typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_exchange {
  uint32_t major, minor;
  struct dl_exchange *previous;
  void *allocate, *from_object, *to_object;
  int (*view)(void *object, dl_tensor *into);
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

/* PyTorch and Python are compiled by others: the layouts are those of 64-bit Linux. */
_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8 && sizeof(Py_ssize_t) == 8, "64 bits");
_Static_assert(SIZEOF_VOID_P == 8 && SIZEOF_LONG == 8 && SIZEOF_SIZE_T == 8 &&
                   SIZEOF_WCHAR_T == sizeof(wchar_t),
               "pyconfig.h of this target");
_Static_assert(offsetof(PyObject, ob_type) == 8, "PyObject of a release build");
_Static_assert(sizeof(dl_tensor) == 48 && offsetof(dl_tensor, rank) == 16 &&
                   offsetof(dl_tensor, code) == 20 && offsetof(dl_tensor, shape) == 24,
               "DLTensor of dlpack.h");
_Static_assert(offsetof(dl_exchange, previous) == 8 && offsetof(dl_exchange, view) == 40,
               "DLPackExchangeAPI of dlpack.h");

enum { DL_CPU = 1, DL_CUDA = 2, DL_MAJOR = 1 };

/* Set once by configure, which Python calls before any other function. Owned for good. */
static struct {
  PyTypeObject *tensor, *parameter;
  const dl_exchange *exchange; /* NULL: the attributes are read */
  PyObject *dtypes;            /* dict from dtype to a dtype below */
  PyObject *modes, *grad_enabled, *current_device, *raw_stream; /* functions of torch._C */
  PyObject *tracing;    /* (): what jit.trace records, or None */
  PyObject *transforms; /* (): the innermost transform of torch.func, or None */
  PyObject *forward_ad; /* the module: _current_level is -1 outside of forward-mode differentiation */
  PyObject *bump;       /* (tensors): increments their version counters */
  PyObject *is_neg;     /* (tensor): whether its values are those of its memory, negated */
  PyObject *empty;     /* (shape, strides, dtype): a tensor on the current device */
  PyObject *workspace; /* (device, stream, bytes): a tensor whose counters are zero, and whether
                        * later calls on the stream may have it too */
  PyObject *bind;      /* (device): makes its context current on this thread */
  PyObject *capturing; /* (): whether the current stream is captured */
  PyObject *gpu;       /* (device): its architecture, 89 for sm_89, and its multiprocessors */
  int32_t device_type;
  /* Names of attributes. */
  PyObject *requires_grad, *shape, *stride, *dtype, *data_ptr, *on_device, *get_device,
      *current_level;
  PyObject *precisions[3]; /* the values of the argument, by attune_sdpa_precision */
  PyObject *module; /* the name of this module, a key of the dict of each thread */
} torch;

/* Functions of libcuda.so.1, NULL without it. PyTorch's own take 0.1 and 0.3 us more. */
static struct {
  int (*cuCtxGetDevice)(int *device);
  int (*cuStreamIsCapturing)(void *stream, int *status);
} driver;

/* The dtypes of the library, and those of factors and of indices. */
enum {
  OTHER = 0,
  E4M3 = ATTUNE_SDPA_E4M3,
  FP16 = ATTUNE_SDPA_FP16,
  BF16 = ATTUNE_SDPA_BF16,
  FLOAT32,
  INT32,
  INT64 /* signed or not */
};

enum { MAX_RANK = 4 };

static PyObject *dtype_objects[INT64 + 1]; /* of the dict above, by dtype */

typedef struct view {
  void *data; /* NULL: there is no such tensor */
  int dtype, device, rank;
  int64_t shape[MAX_RANK], stride[MAX_RANK];
} view;

static int dtype_of(const dl_tensor *t) {
  enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, FLOAT8_E4M3FN = 10 };
  if (t->lanes != 1) return OTHER;
  if (t->code == FLOAT) return t->bits == 16 ? FP16 : t->bits == 32 ? FLOAT32 : OTHER;
  if (t->code == BFLOAT) return t->bits == 16 ? BF16 : OTHER;
  if (t->code == FLOAT8_E4M3FN) return E4M3;
  if ((t->code == INT || t->code == UINT) && t->bits == 64) return INT64;
  return t->code == INT && t->bits == 32 ? INT32 : OTHER;
}

static bool look_by_exchange(PyObject *tensor, view *into) {
  dl_tensor t;
  if (torch.exchange->view(tensor, &t) != 0) return PyErr_Clear(), false;
  if (t.device_type != torch.device_type || t.rank > MAX_RANK) return false;
  into->data = (char *)t.data + t.byte_offset;
  into->dtype = dtype_of(&t), into->device = t.device_id, into->rank = t.rank;
  for (int i = 0; i < t.rank; ++i) into->shape[i] = t.shape[i], into->stride[i] = t.strides[i];
  return true;
}

static bool read_tuple(PyObject *tuple, int64_t *into, int *count) {
  const Py_ssize_t n = tuple == NULL || !PyTuple_Check(tuple) ? -1 : PyTuple_Size(tuple);
  if (n >= 0 && n <= MAX_RANK) {
    for (Py_ssize_t i = 0; i < n; ++i) into[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  }
  *count = (int)n;
  Py_XDECREF(tuple);
  return n >= 0 && n <= MAX_RANK && !PyErr_Occurred();
}

/* The integer that a method without arguments returns. */
static long long call_integer(PyObject *tensor, PyObject *method) {
  PyObject *result = PyObject_CallMethodObjArgs(tensor, method, NULL);
  const long long value = result == NULL ? 0 : (long long)PyLong_AsUnsignedLongLongMask(result);
  Py_XDECREF(result);
  return value;
}

static bool look_by_attributes(PyObject *tensor, view *into) {
  int strides = 0;
  PyObject *on_device = PyObject_GetAttr(tensor, torch.on_device);
  PyObject *dtype = PyObject_GetAttr(tensor, torch.dtype);
  bool good = on_device == Py_True && dtype != NULL;
  if (good) {
    PyObject *code = PyDict_GetItemWithError(torch.dtypes, dtype);
    into->dtype = code == NULL ? OTHER : (int)PyLong_AsLong(code);
    into->device = (int)call_integer(tensor, torch.get_device);
    if (into->device < 0) into->device = 0; /* of the CPU, in tests */
    into->data = (void *)(uintptr_t)call_integer(tensor, torch.data_ptr);
    PyObject *shape = PyObject_GetAttr(tensor, torch.shape);
    PyObject *stride = PyObject_CallMethodObjArgs(tensor, torch.stride, NULL);
    good = read_tuple(shape, into->shape, &into->rank);
    good = read_tuple(stride, into->stride, &strides) && good;
  }
  Py_XDECREF(on_device);
  Py_XDECREF(dtype);
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  return good;
}

/* False for anything but a plain tensor with elements on a CUDA device: subclasses are for the
 * dispatcher of PyTorch. */
static bool look(PyObject *tensor, view *into) {
  if (Py_TYPE(tensor) != torch.tensor && Py_TYPE(tensor) != torch.parameter) return false;
  const bool seen =
      torch.exchange != NULL ? look_by_exchange(tensor, into) : look_by_attributes(tensor, into);
  if (!seen) return false;
  for (int i = 0; i < into->rank; ++i) {
    if (into->shape[i] < 1) return false;
  }
  return true;
}

static _Alignas(16) char given; /* where a pointer only must not be NULL */

/* The extents of anything that has those of a tensor, on any device, for questions to the library. */
static bool look_anywhere(PyObject *tensor, view *into) {
  int strides = 0;
  PyObject *dtype = PyObject_GetAttr(tensor, torch.dtype);
  PyObject *code = dtype == NULL ? NULL : PyDict_GetItemWithError(torch.dtypes, dtype);
  into->dtype = code == NULL ? OTHER : (int)PyLong_AsLong(code);
  into->device = 0, into->data = &given;
  PyObject *shape = PyObject_GetAttr(tensor, torch.shape);
  PyObject *stride = PyObject_CallMethodObjArgs(tensor, torch.stride, NULL);
  bool good = read_tuple(shape, into->shape, &into->rank);
  good = read_tuple(stride, into->stride, &strides) && good;
  Py_XDECREF(dtype);
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  for (int i = 0; i < into->rank && good; ++i) good = into->shape[i] >= 1;
  return good;
}

static long call_long(PyObject *function) {
  PyObject *result = PyObject_CallNoArgs(function);
  const long value = result == NULL ? -1 : PyLong_AsLong(result);
  Py_XDECREF(result);
  return value;
}

/* A new thread has no context yet, but a device. */
static long current_device(void) {
  int device = -1;
  if (driver.cuCtxGetDevice != NULL && driver.cuCtxGetDevice(&device) == 0) return device;
  return call_long(torch.current_device);
}

/* Whether a function without arguments returns a certain object. */
static bool returns(PyObject *function, PyObject *want) {
  PyObject *result = PyObject_CallNoArgs(function);
  Py_XDECREF(result); /* both are immortal, or alive elsewhere */
  return result == want;
}

/* Whether a value, which is given up, is False. */
static bool is_false(PyObject *value) {
  Py_XDECREF(value);
  return value == Py_False;
}

/* Whether PyTorch must see the call: a mode, a trace or a transform is active, a gradient is wanted,
 * or a tensor has not the values that its memory has. */
static bool is_observed(PyObject *const *tensors, int count, PyObject *factors) {
  bool observed = call_long(torch.modes) != 0 || !returns(torch.tracing, Py_None) ||
                  !returns(torch.transforms, Py_None);
  PyObject *level = PyObject_GetAttr(torch.forward_ad, torch.current_level);
  observed = observed || level == NULL || PyLong_AsLong(level) != -1;
  Py_XDECREF(level);
  const bool differentiates = !returns(torch.grad_enabled, Py_False);
  for (int i = 0; i < count && !observed; ++i) {
    if (tensors[i] == Py_None) continue;
    observed = !is_false(PyObject_CallFunctionObjArgs(torch.is_neg, tensors[i], NULL)) ||
               (differentiates && !is_false(PyObject_GetAttr(tensors[i], torch.requires_grad)));
  }
  const Py_ssize_t more = differentiates && factors != Py_None ? PySequence_Size(factors) : 0;
  for (Py_ssize_t i = 0; i < more && !observed; ++i) {
    PyObject *factor = PySequence_GetItem(factors, i);
    observed = factor == NULL || !is_false(PyObject_GetAttr(factor, torch.requires_grad));
    Py_XDECREF(factor);
  }
  PyErr_Clear();
  return observed;
}

/* Increments the version counters of tensors that were written, so that a backward pass that needs
 * their old values fails. */
static bool bump_versions(PyObject *first, PyObject *second) {
  PyObject *tensors = second == NULL ? PyTuple_Pack(1, first) : PyTuple_Pack(2, first, second);
  PyObject *result = tensors == NULL ? NULL : PyObject_CallFunctionObjArgs(torch.bump, tensors, NULL);
  Py_XDECREF(tensors);
  Py_XDECREF(result);
  return result != NULL;
}

/* ---- views ----------------------------------------------------------------------------------- */

static bool is_half(const view *x) { return x->dtype == FP16 || x->dtype == BF16; }

/* A contiguous tensor of these extents; -1 for any. */
static bool is_array(const view *x, int dtype, int device, int rank, const int64_t *shape) {
  int64_t stride = 1;
  if (x->dtype != dtype || x->device != device || x->rank != rank) return false;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] >= 0 && x->shape[i] != shape[i]) return false;
    if (x->shape[i] != 1 && x->stride[i] != stride) return false;
    stride *= x->shape[i];
  }
  return true;
}

static bool is_vector(const view *x, int dtype, int device, int64_t length) {
  return is_array(x, dtype, device, 1, &length);
}

static bool is_factor(const view *x, int device, int64_t batch, int64_t heads) {
  return is_array(x, FLOAT32, device, 2, (const int64_t[]){batch, heads});
}

/* An optional argument: true if it is None, and then the view stays without data. */
static bool look_optional(PyObject *tensor, view *into) {
  return tensor == Py_None || look(tensor, into);
}

/* The strides of batch, head and row, of [batch, heads, rows, head_dim], or packed [rows, heads,
 * head_dim]. The stride of one element may be anything in PyTorch; here it becomes that of a
 * contiguous tensor. False if the library cannot read the tensor where it is. */
static bool set_strides(const view *x, int64_t into[3]) {
  const int64_t bytes = x->dtype == E4M3 ? 1 : 2, *s = x->stride, *n = x->shape;
  const int last = x->rank - 1;
  if ((uintptr_t)x->data % 16 != 0 || (n[last] != 1 && s[last] != 1)) return false;
  if (x->rank == 3) {
    into[2] = n[0] == 1 ? n[1] * n[2] : s[0];
    into[1] = n[1] == 1 ? n[2] : s[1];
    into[0] = 0;
  } else {
    into[2] = n[2] == 1 ? n[3] : s[2];
    into[1] = n[1] == 1 ? n[2] * n[3] : s[1];
    into[0] = n[0] == 1 ? n[1] * n[2] * n[3] : s[0];
  }
  if (n[last] % 8 != 0) return false;
  if (n[last] * bytes % 16 != 0) { /* no strides, so that the library refuses the head_dim */
    into[0] = into[1] = into[2] = 0;
    return true;
  }
  for (int i = x->rank == 3 ? 1 : 0; i < 3; ++i) { /* less than a row: an expanded tensor */
    if (into[i] * bytes % 16 != 0 || into[i] < n[last]) return false;
  }
  return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct CUstream_st *CUstream;

static PyObject *raise(attune_sdpa_status status) {
  PyObject *kind = PyExc_RuntimeError;
  if (status == ATTUNE_SDPA_INVALID_ARGUMENT) kind = PyExc_ValueError;
  /* PyTorch may run on a driver that is too old for the code of the library. */
  if (status == ATTUNE_SDPA_UNSUPPORTED || status == ATTUNE_SDPA_NO_DRIVER) {
    kind = PyExc_NotImplementedError;
  }
  PyErr_SetString(kind, attune_sdpa_last_error());
  return NULL;
}

static bool current_stream(int device, CUstream *into) {
  void *stream = NULL;
  if (torch.exchange != NULL) {
    if (torch.exchange->current_stream(torch.device_type, device, &stream) != 0) return false;
  } else {
    PyObject *result = PyObject_CallFunction(torch.raw_stream, "i", device);
    if (result == NULL) return false;
    stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLongMask(result);
    Py_DECREF(result);
  }
  *into = stream;
  return true;
}

/* The workspace of this thread's last call that was not captured: asking Python takes 0.4 us. It is
 * owned, so another thread may replace it for the stream: calls on a stream do not overlap. */
typedef struct kept_workspace {
  PyObject *tensor;
  void *data;
  size_t bytes;
  int device;
  CUstream stream;
} kept_workspace;

static void free_kept(PyObject *capsule) {
  kept_workspace *kept = PyCapsule_GetPointer(capsule, NULL);
  if (kept == NULL) return PyErr_Clear();
  Py_XDECREF(kept->tensor);
  PyMem_Free(kept);
}

/* The dict of the thread owns it, so that it goes with the thread. NULL without memory. */
static kept_workspace *kept_of_thread(void) {
  PyObject *of_thread = PyThreadState_GetDict();
  PyObject *capsule =
      of_thread == NULL ? NULL : PyDict_GetItemWithError(of_thread, torch.module);
  if (capsule != NULL) return PyCapsule_GetPointer(capsule, NULL);
  kept_workspace *kept = of_thread == NULL ? NULL : PyMem_Calloc(1, sizeof *kept);
  if (kept == NULL) return NULL;
  capsule = PyCapsule_New(kept, NULL, free_kept);
  if (capsule == NULL) return PyMem_Free(kept), NULL;
  const int failed = PyDict_SetItem(of_thread, torch.module, capsule);
  Py_DECREF(capsule);
  return failed ? NULL : kept;
}

/* The default stream of all threads cannot be captured. */
static bool is_captured(CUstream stream) {
  int status = 0;
  if (stream == NULL) return false;
  if (driver.cuStreamIsCapturing != NULL && driver.cuStreamIsCapturing(stream, &status) == 0) {
    return status != 0;
  }
  PyObject *result = PyObject_CallNoArgs(torch.capturing);
  const bool captured = result != Py_False;
  Py_XDECREF(result);
  PyErr_Clear();
  return captured;
}

/* A workspace for a call. The result owns it until the launch; NULL with an exception set. */
static PyObject *take_workspace(int device, CUstream stream, size_t bytes, void **data) {
  kept_workspace *kept = kept_of_thread();
  if (kept == NULL) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  if (kept->tensor != NULL && kept->bytes >= bytes && kept->device == device &&
      kept->stream == stream && !is_captured(stream)) {
    *data = kept->data;
    return Py_NewRef(kept->tensor);
  }
  view w = {0};
  const unsigned long long handle = (uintptr_t)stream;
  PyObject *answer =
      PyObject_CallFunction(torch.workspace, "iKn", device, handle, (Py_ssize_t)bytes);
  if (answer == NULL) return NULL;
  PyObject *tensor = PyTuple_GetItem(answer, 0), *lasts = PyTuple_GetItem(answer, 1);
  if (tensor == NULL || lasts == NULL || !look(tensor, &w)) {
    PyErr_SetString(PyExc_RuntimeError, "the workspace is no plain tensor");
    tensor = NULL;
  }
  Py_XINCREF(tensor);
  Py_CLEAR(kept->tensor); /* behind a capture, Python must see the next call */
  if (tensor != NULL && lasts == Py_True) {
    kept->tensor = Py_NewRef(tensor), kept->data = w.data, kept->bytes = (size_t)w.shape[0];
    kept->device = device, kept->stream = stream;
  }
  Py_DECREF(answer);
  *data = w.data;
  return tensor;
}

/* Calls a function of the library without the lock of the interpreter: the first call of a form
 * loads its code, and a launch waits where the stream's queue is full. A new thread of PyTorch has
 * no context until a call of the CUDA runtime gives it one. */
#define LAUNCH(status, function, params, stream, device)                                        \
  for (int attempt_ = 0;; ++attempt_) {                                                         \
    PyThreadState *thread_ = PyEval_SaveThread();                                               \
    status = function(params, stream);                                                          \
    PyEval_RestoreThread(thread_);                                                              \
    if (attempt_ > 0 || status != ATTUNE_SDPA_INVALID_ARGUMENT || !misses_context()) break;     \
    Py_XDECREF(PyObject_CallFunction(torch.bind, "i", device));                                 \
    PyErr_Clear();                                                                              \
  }

static bool misses_context(void) {
  static const char text[] = "no CUDA context";
  return strncmp(attune_sdpa_last_error(), text, sizeof text - 1) == 0;
}

/* The arguments of attend, in their order. */
enum {
  Q, K, V, CAUSAL, SCALE, WINDOW_SIZE, SINKS, DESCALE, RETURN_LSE, OUT, SMOOTH_K, HADAMARD,
  CU_SEQLENS_Q, CU_SEQLENS_K, MAX_SEQLEN_Q, MAX_SEQLEN_K, /* packed sequences */
  LENGTHS, PAGE_TABLE,                                    /* a cache */
  PRECISION,                                              /* "auto", "fp8" or "16" */
  SOFTCAP,                                                /* None or 0 for none */
  ALIBI_SLOPES, TREE_MASK,
  TRUSTED,                                                /* the caller is the dispatcher: nothing observes */
  ARGUMENTS
};

typedef struct attention {
  bool (*look)(PyObject *tensor, view *into); /* look, or look_anywhere */
  view q, k, v, o, lse, descale[3], sinks, cu_queries, cu_keys, lengths, page_table, alibi_slopes,
      tree_mask;
  attune_sdpa_params p;
} attention;

/* (left, right), -1 or None for no limit. Without a limit on either side there is no window. */
static bool set_window(PyObject *window, attune_sdpa_params *p) {
  if (window == Py_None) return true;
  if (!PyTuple_Check(window) || PyTuple_Size(window) != 2) return false;
  int32_t limits[2] = {-1, -1};
  for (int i = 0; i < 2; ++i) {
    PyObject *value = PyTuple_GetItem(window, i);
    if (value == Py_None) continue;
    if (!PyLong_Check(value) || PyBool_Check(value)) return false;
    const long keys = PyLong_AsLong(value);
    if (keys < -1 || keys > INT32_MAX || PyErr_Occurred()) return PyErr_Clear(), false;
    limits[i] = (int32_t)keys;
  }
  if (limits[0] < 0 && limits[1] < 0) return true;
  p->has_window = 1, p->window_left = limits[0], p->window_right = limits[1];
  return true;
}

/* A number that is finite and not negative; None leaves what is there. A tensor is no number: it may
 * have a gradient, and would have to be read back. */
static bool read_factor(PyObject *number, double *into) {
  if (number == Py_None) return true;
  if (!PyFloat_Check(number) && (!PyLong_Check(number) || PyBool_Check(number))) return false;
  const double value = PyFloat_AsDouble(number);
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  if (!(value >= 0 && value <= FLT_MAX)) return false;
  *into = value;
  return true;
}

static bool set_scale(PyObject *scale, attune_sdpa_params *p) {
  double value = -1;
  if (!read_factor(scale, &value)) return false;
  if (value >= 0) p->scale = value == 0 ? FLT_MIN : (float)value; /* 0 stands for the default */
  return true;
}

static bool set_softcap(PyObject *softcap, attune_sdpa_params *p) {
  double value = 0;
  if (!read_factor(softcap, &value)) return false;
  p->softcap = value > 0 && value < FLT_MIN ? FLT_MIN : (float)value; /* 0 stands for none */
  return true;
}

/* Most values are the interned string. */
static bool set_precision(PyObject *value, attune_sdpa_params *p) {
  for (int i = 0; i < 3; ++i) {
    if (value == torch.precisions[i]) return p->precision = i, true;
  }
  if (!PyUnicode_Check(value)) return false;
  for (int i = 0; i < 3; ++i) {
    if (PyUnicode_Compare(value, torch.precisions[i]) == 0) return p->precision = i, true;
  }
  return PyErr_Clear(), false;
}

/* An option that is on or off; an int, which a bool is, can have no other meaning. */
static bool read_flag(PyObject *value, int32_t *into) {
  if (!PyLong_Check(value)) return false;
  *into = PyObject_IsTrue(value);
  return true;
}

static bool set_flags(PyObject *const *args, attune_sdpa_params *p) {
  if (!read_flag(args[CAUSAL], &p->causal) || !read_flag(args[SMOOTH_K], &p->smooth_k) ||
      !read_flag(args[HADAMARD], &p->hadamard)) {
    return false;
  }
  if (!set_precision(args[PRECISION], p)) return false;
  /* No quantiser, no options of it. */
  if (p->precision == ATTUNE_SDPA_PRECISION_16 && (p->smooth_k || p->hadamard)) return false;
  return set_scale(args[SCALE], p) && set_softcap(args[SOFTCAP], p) &&
         set_window(args[WINDOW_SIZE], p);
}

/* Sizes of k and v, [batch, kv_heads, keys, head_dim] or pages, beside those of q. */
static bool set_key_sizes(attention *a) {
  attune_sdpa_params *p = &a->p;
  const view *q = &a->q, *k = &a->k;
  if (k->rank != 4) return false;
  p->kv_heads = (int32_t)k->shape[1], p->keys = (int32_t)k->shape[2];
  if (a->page_table.data != NULL) {
    const int64_t table[] = {p->batch, -1};
    if (!is_array(&a->page_table, INT32, q->device, 2, table)) return false;
    p->pages = (int32_t)k->shape[0], p->page_size = p->keys;
    p->max_pages = (int32_t)a->page_table.shape[1];
    if ((int64_t)p->max_pages * p->page_size > INT32_MAX) return false;
    p->keys = p->max_pages * p->page_size;
    p->page_table = a->page_table.data;
  } else if (k->shape[0] != p->batch) {
    return false;
  }
  if (a->lengths.data != NULL && !is_vector(&a->lengths, INT32, q->device, p->batch)) return false;
  p->key_lengths = a->lengths.data;
  return k->shape[3] == p->head_dim;
}

/* Sizes of q of [batch, heads, rows, head_dim]. */
static bool set_query_sizes(attention *a) {
  attune_sdpa_params *p = &a->p;
  const view *q = &a->q;
  if (q->rank != 4) return false;
  p->batch = (int32_t)q->shape[0], p->heads = (int32_t)q->shape[1];
  p->queries = (int32_t)q->shape[2], p->head_dim = (int32_t)q->shape[3];
  return true;
}

/* Offsets of packed rows of a tensor, and the most rows of a sequence. */
static bool is_packing(const view *offsets, PyObject *most, const view *x, int32_t *rows) {
  if (!PyLong_Check(most) || PyBool_Check(most)) return false;
  const long n = PyLong_AsLong(most);
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  if (x->rank != 3 || n < 1 || n > x->shape[0] || n > INT32_MAX) return false;
  *rows = (int32_t)n;
  return is_vector(offsets, INT32, x->device, offsets->shape[0]) && offsets->shape[0] >= 2;
}

/* Sizes of packed queries, [rows, heads, head_dim]. */
static bool set_packed_queries(PyObject *const *args, attention *a) {
  attune_sdpa_params *p = &a->p;
  const view *q = &a->q;
  if (!is_packing(&a->cu_queries, args[MAX_SEQLEN_Q], q, &p->queries)) return false;
  p->batch = (int32_t)(a->cu_queries.shape[0] - 1);
  p->heads = (int32_t)q->shape[1], p->head_dim = (int32_t)q->shape[2];
  p->total_queries = (int32_t)q->shape[0], p->cu_queries = a->cu_queries.data;
  return true;
}

/* Sizes of packed keys, [rows, kv_heads, head_dim]. */
static bool set_packed_keys(PyObject *const *args, attention *a) {
  attune_sdpa_params *p = &a->p;
  const view *k = &a->k;
  if (!is_packing(&a->cu_keys, args[MAX_SEQLEN_K], k, &p->keys)) return false;
  if (a->cu_keys.shape[0] != a->cu_queries.shape[0] || a->cu_keys.device != a->q.device) return false;
  p->kv_heads = (int32_t)k->shape[1];
  p->total_keys = (int32_t)k->shape[0], p->cu_keys = a->cu_keys.data;
  return k->shape[2] == p->head_dim;
}

/* Packed queries attend to packed keys, or with lengths to a cache. */
static bool set_sizes(PyObject *const *args, attention *a) {
  const bool packed = a->cu_queries.data != NULL, cache = a->lengths.data != NULL;
  if (!(packed ? set_packed_queries(args, a) : set_query_sizes(a))) return false;
  return packed && !cache ? set_packed_keys(args, a) : set_key_sizes(a);
}

/* No extent is too large for a field, and k and v are alike. */
static bool agree(const attention *a) {
  const view *q = &a->q, *k = &a->k, *v = &a->v;
  if (v->rank != k->rank || v->dtype != k->dtype) return false;
  if (v->device != q->device || k->device != q->device) return false;
  for (int i = 0; i < q->rank; ++i) {
    if (q->shape[i] > INT32_MAX) return false;
  }
  for (int i = 0; i < k->rank; ++i) {
    if (k->shape[i] > INT32_MAX || v->shape[i] != k->shape[i]) return false;
  }
  return a->p.heads % a->p.kv_heads == 0;
}

/* Dtypes of q and of k and v, and the factors of those in E4M3: (of k, of v) or all three. Only a
 * cache in E4M3 may differ from q. */
static bool set_dtypes(PyObject *descale, attention *a) {
  attune_sdpa_params *p = &a->p;
  const int of_q = a->q.dtype, of_k = a->k.dtype;
  const bool cache = a->lengths.data != NULL;
  if (of_q != of_k && !(cache && of_k == E4M3)) return false;
  p->dtype = of_k, p->q_dtype = of_q == of_k ? 0 : of_q;
  if (of_k != E4M3) return is_half(&a->k) && of_q == of_k && descale == Py_None;
  if ((of_q != E4M3 && !is_half(&a->q)) || p->smooth_k || p->hadamard) return false;
  if (p->precision == ATTUNE_SDPA_PRECISION_16) return false;
  const bool tuple = PyTuple_Check(descale);
  if (!tuple && !PyList_Check(descale)) return false;
  const Py_ssize_t count = tuple ? PyTuple_Size(descale) : PyList_Size(descale);
  const int first = p->q_dtype != 0; /* a q that is not in E4M3 has no factor */
  if (count != 3 - first) return false;
  for (int i = first; i < 3; ++i) {
    const int at = i - first, heads = i == 0 ? p->heads : p->kv_heads;
    PyObject *factor = tuple ? PyTuple_GetItem(descale, at) : PyList_GetItem(descale, at);
    if (!a->look(factor, &a->descale[i])) return false;
    if (!is_factor(&a->descale[i], a->q.device, p->batch, heads)) return false;
  }
  p->descale_q = a->descale[0].data, p->descale_k = a->descale[1].data;
  p->descale_v = a->descale[2].data;
  return true;
}

/* Slopes of [heads] or [batch, heads], and the mask of a tree in place of a causal one, of [batch,
 * queries] or [rows]. */
static bool set_bias(attention *a) {
  enum { MAX_TOKENS = 64 };
  attune_sdpa_params *p = &a->p;
  const view *slopes = &a->alibi_slopes, *tree = &a->tree_mask;
  const int device = a->q.device;
  if (slopes->data != NULL) {
    if (slopes->rank == 2 ? !is_factor(slopes, device, p->batch, p->heads)
                          : !is_vector(slopes, FLOAT32, device, p->heads)) {
      return false;
    }
    p->alibi_slopes = slopes->data;
    p->alibi_stride = slopes->rank == 2 && p->batch > 1 ? p->heads : 0;
  }
  if (tree->data == NULL) return true;
  if (p->causal || p->has_window || p->queries > MAX_TOKENS) return false;
  p->tree_mask = tree->data;
  const int64_t words[] = {p->batch, p->queries};
  return a->q.rank == 3 ? is_vector(tree, INT64, device, a->q.shape[0])
                        : is_array(tree, INT64, device, 2, words);
}

/* Reads all arguments but the outputs into the parameters. */
static bool read_arguments(PyObject *const *args, attention *a) {
  attune_sdpa_params *p = &a->p;
  if (!a->look(args[Q], &a->q) || !a->look(args[K], &a->k) || !a->look(args[V], &a->v)) return false;
  const struct {
    PyObject *tensor;
    view *into;
  } optional[] = {{args[SINKS], &a->sinks},
                  {args[LENGTHS], &a->lengths},
                  {args[CU_SEQLENS_Q], &a->cu_queries},
                  {args[CU_SEQLENS_K], &a->cu_keys},
                  {args[PAGE_TABLE], &a->page_table},
                  {args[ALIBI_SLOPES], &a->alibi_slopes},
                  {args[TREE_MASK], &a->tree_mask}};
  for (int i = 0; i < 7; ++i) {
    if (optional[i].tensor != Py_None && !a->look(optional[i].tensor, optional[i].into)) return false;
  }
  if (!set_flags(args, p)) return false;
  p->struct_size = sizeof *p;
  p->flags = ATTUNE_SDPA_TRUST_POINTERS; /* the device of every tensor is compared here */
  if (!set_sizes(args, a)) return false;
  if (!agree(a) || !set_dtypes(args[DESCALE], a)) return false;
  if (a->sinks.data != NULL && !is_vector(&a->sinks, FLOAT32, a->q.device, p->heads)) return false;
  p->sinks = a->sinks.data;
  if (!set_bias(a)) return false;
  p->q = a->q.data, p->k = a->k.data, p->v = a->v.data;
  return set_strides(&a->q, p->q_stride) && set_strides(&a->k, p->k_stride) &&
         set_strides(&a->v, p->v_stride);
}

/* Whether no two rows can overlap: each dimension steps over those with smaller strides. */
static bool is_apart(const view *x) {
  int64_t extent = x->shape[x->rank - 1], last = 0;
  for (;;) {
    int next = -1; /* of the dimensions not yet seen the one with the smallest stride */
    for (int i = 0; i < x->rank - 1; ++i) {
      if (x->shape[i] == 1 || x->stride[i] <= last) continue;
      if (next < 0 || x->stride[i] < x->stride[next]) next = i;
    }
    if (next < 0) break;
    last = x->stride[next];
    if (last < extent) return false;
    extent += last * (x->shape[next] - 1);
  }
  for (int i = 0; i < x->rank - 1; ++i) { /* equal strides, or none */
    if (x->shape[i] > 1 && x->stride[i] == 0) return false;
    for (int j = 0; j < i; ++j) {
      if (x->shape[i] > 1 && x->shape[j] > 1 && x->stride[i] == x->stride[j]) return false;
    }
  }
  return true;
}

/* The output that is given: of q's sizes, and no two elements in one place. */
static bool set_output(PyObject *out, attention *a) {
  const view *q = &a->q, *o = &a->o;
  if (!a->look(out, &a->o) || !is_half(o)) return false;
  if (o->device != q->device || o->rank != q->rank) return false;
  if (memcmp(o->shape, q->shape, (size_t)q->rank * sizeof *q->shape) != 0) return false;
  return set_strides(o, a->p.o_stride) && is_apart(o);
}

static int64_t bytes_of(int dtype) {
  return dtype == E4M3 ? 1 : dtype == FLOAT32 || dtype == INT32 ? 4 : 2;
}

/* Whether the memory from the first to the last element of two tensors has a byte in common; not if
 * one is missing. */
static bool may_overlap(const view *a, const view *b) {
  uintptr_t end[2];
  const view *both[2] = {a, b};
  if (a->data == NULL || b->data == NULL) return false;
  for (int t = 0; t < 2; ++t) {
    const view *x = both[t];
    int64_t last = 0;
    for (int i = 0; i < x->rank; ++i) last += (x->shape[i] - 1) * x->stride[i];
    end[t] = (uintptr_t)x->data + (uintptr_t)((last + 1) * bytes_of(x->dtype));
  }
  return (uintptr_t)a->data < end[1] && (uintptr_t)b->data < end[0];
}

/* Whether the output may overlap something that the kernel reads. */
static bool output_may_overlap(const attention *a) {
  const view *inputs[] = {&a->q,          &a->k,       &a->v,       &a->descale[0], &a->descale[1], &a->descale[2],
                          &a->cu_queries, &a->cu_keys, &a->lengths, &a->page_table, &a->sinks};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) {
    if (may_overlap(&a->o, inputs[i])) return true;
  }
  return false;
}

/* A dense tensor on the current device, contiguous or, with rows_first, in the order of [batch, rows,
 * heads, head_dim]. */
static PyObject *new_tensor(const int64_t *shape, int rank, bool rows_first, int dtype,
                            view *into) {
  PyObject *sizes = PyTuple_New(rank), *strides = PyTuple_New(rank), *tensor = NULL;
  if (sizes != NULL && strides != NULL) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      const int at = rows_first && (i == 1 || i == 2) ? 3 - i : i;
      PyTuple_SetItem(sizes, at, PyLong_FromLongLong(shape[at]));
      PyTuple_SetItem(strides, at, PyLong_FromLongLong(stride));
      stride *= shape[at];
    }
    PyObject *type = dtype_objects[dtype];
    tensor = PyObject_CallFunctionObjArgs(torch.empty, sizes, strides, type, NULL);
  }
  Py_XDECREF(sizes);
  Py_XDECREF(strides);
  if (tensor != NULL && !look(tensor, into)) {
    Py_CLEAR(tensor);
    PyErr_SetString(PyExc_RuntimeError, "a new output is no plain tensor");
  }
  return tensor;
}

static PyObject *new_lse(attention *a) {
  const attune_sdpa_params *p = &a->p;
  const int64_t packed[] = {p->heads, p->total_queries}, plain[] = {p->batch, p->heads, p->queries};
  return a->q.rank == 3 ? new_tensor(packed, 2, false, FLOAT32, &a->lse)
                        : new_tensor(plain, 3, false, FLOAT32, &a->lse);
}

/* The strides of O for rows before heads. */
static void order_rows_first(attune_sdpa_params *p) {
  p->o_stride[1] = p->head_dim, p->o_stride[2] = (int64_t)p->heads * p->head_dim;
  p->o_stride[0] = p->queries * p->o_stride[2];
}

/* Whether the form that computes a problem is the same with rows of O before its heads: not every
 * form takes strides of O. */
static bool takes_rows_first(attune_sdpa_params p) {
  p.workspace = &given;
  memset(p.o_stride, 0, sizeof p.o_stride);
  const char *contiguous = attune_sdpa_form(&p);
  order_rows_first(&p);
  return contiguous != NULL && contiguous == attune_sdpa_form(&p);
}

/* What the library plans for: (0, 0), the current context, where PyTorch does not say. */
typedef struct gpu {
  bool is_known;
  int arch, multiprocessors;
} gpu;

enum { MAX_GPUS = 64 };
static gpu gpus[MAX_GPUS];

enum { HOPPER = 90 };

/* Tells the library which GPU a call is for: plans are made on threads that have no context yet. */
static void set_gpu(int device, attune_sdpa_params *p) {
  if (device < 0 || device >= MAX_GPUS) return;
  gpu *g = &gpus[device];
  if (!g->is_known) {
    PyObject *found = PyObject_CallFunction(torch.gpu, "i", device);
    if (found == NULL || !PyArg_ParseTuple(found, "ii", &g->arch, &g->multiprocessors)) {
      PyErr_Clear();
      g->arch = g->multiprocessors = 0;
    }
    Py_XDECREF(found);
    g->is_known = true;
  }
  p->arch = g->arch, p->multiprocessors = g->multiprocessors;
}

/* What the library says of a problem. */
typedef struct answers {
  size_t workspace_bytes;
  bool takes_rows_first;
} answers;

/* The answers for the last few problems: the layers of a model repeat them, and the library takes
 * 0.4 us for each. Of the pointers only those matter that are NULL in some problems. */
static answers ask(const attune_sdpa_params *p) {
  enum { ENTRIES = 8 };
  static struct {
    attune_sdpa_params problem;
    answers answers;
  } known[ENTRIES];
  static unsigned next;
#define PRESENCE(pointer) ((void *)((pointer) == NULL ? NULL : &given))
  attune_sdpa_params key = *p;
  key.q = key.k = key.v = key.o = NULL;
  key.lse = PRESENCE(p->lse), key.sinks = PRESENCE(p->sinks);
  key.descale_q = PRESENCE(p->descale_q), key.descale_k = PRESENCE(p->descale_k);
  key.descale_v = PRESENCE(p->descale_v);
  key.cu_queries = PRESENCE(p->cu_queries), key.cu_keys = PRESENCE(p->cu_keys);
  key.key_lengths = PRESENCE(p->key_lengths), key.page_table = PRESENCE(p->page_table);
  key.alibi_slopes = PRESENCE(p->alibi_slopes), key.tree_mask = PRESENCE(p->tree_mask);
#undef PRESENCE
  for (int i = 0; i < ENTRIES; ++i) {
    if (memcmp(&known[i].problem, &key, sizeof key) == 0) return known[i].answers;
  }
  const unsigned at = next++ % ENTRIES;
  known[at].problem = key;
  return known[at].answers = (answers){attune_sdpa_workspace_bytes(p), takes_rows_first(*p)};
}

/* Chooses the dtype and the order of a new O: the dimension order of q, where the form takes that, so
 * that a transpose and a reshape behind attention copy nothing; else contiguous. */
static bool choose_rows_first(attention *a) {
  const view *q = &a->q;
  a->p.out_dtype = q->dtype == E4M3 ? FP16 : q->dtype;
  return q->rank == 4 && q->stride[1] < q->stride[2] && a->lengths.data == NULL &&
         ask(&a->p).takes_rows_first;
}

static PyObject *new_output(attention *a) {
  const view *q = &a->q;
  const bool rows_first = choose_rows_first(a);
  PyObject *o = new_tensor(q->shape, q->rank, rows_first, (int)a->p.out_dtype, &a->o);
  if (o != NULL && rows_first) set_strides(&a->o, a->p.o_stride);
  return o;
}

/* Calls the library with outputs that exist: None, or NULL with an exception set. */
static PyObject *launch(attention *a) {
  attune_sdpa_params *p = &a->p;
  CUstream stream = NULL;
  PyObject *workspace = NULL;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  p->o = a->o.data, p->lse = a->lse.data, p->out_dtype = a->o.dtype;
  if (!current_stream(a->q.device, &stream)) return NULL;
  p->workspace_bytes = ask(p).workspace_bytes;
  if (p->workspace_bytes > 0) {
    workspace = take_workspace(a->q.device, stream, p->workspace_bytes, &p->workspace);
    if (workspace == NULL) return NULL;
  }
  LAUNCH(status, attune_sdpa_forward, p, stream, a->q.device);
  Py_XDECREF(workspace);
  if (status != ATTUNE_SDPA_OK) return raise(status);
  Py_RETURN_NONE;
}

static PyObject *attend(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  if (count != ARGUMENTS) {
    return PyErr_Format(PyExc_TypeError, "attend takes %d arguments, not %zd", ARGUMENTS, count);
  }
  const bool trusted = args[TRUSTED] == Py_True;
  if (!trusted) {
    PyObject *seen[] = {args[Q], args[K], args[V], args[SINKS], args[OUT],
                        args[ALIBI_SLOPES]};
    if (is_observed(seen, 6, args[DESCALE])) Py_RETURN_NONE;
  }
  attention a;
  memset(&a, 0, sizeof a);
  a.look = look;
  int32_t wants_lse = 0;
  if (!read_flag(args[RETURN_LSE], &wants_lse) || !read_arguments(args, &a)) Py_RETURN_NONE;
  /* Smoothing shifts the scores, but not the sinks. */
  if (a.p.smooth_k && a.p.sinks != NULL) Py_RETURN_NONE;
  if (current_device() != a.q.device) return PyErr_Clear(), Py_NewRef(Py_None);
  set_gpu(a.q.device, &a.p);
  /* On Hopper the log-sum-exp has to be shifted back; the kernels for other GPUs do that. */
  const bool other_gpu = a.p.arch != 0 && a.p.arch != HOPPER;
  if (a.p.smooth_k && wants_lse && !other_gpu) Py_RETURN_NONE;
  PyObject *o = args[OUT], *lse = NULL, *result = NULL;
  if (o != Py_None) {
    if (!set_output(o, &a)) Py_RETURN_NONE;
    if (!trusted && output_may_overlap(&a)) Py_RETURN_NONE;
    Py_INCREF(o);
  } else {
    /* The library sees in the parameters that there will be a log-sum-exp. */
    if (wants_lse) a.p.lse = (float *)(void *)&given;
    o = new_output(&a);
    if (o == NULL) goto done;
  }
  if (wants_lse && (lse = new_lse(&a)) == NULL) goto done;
  result = launch(&a);
  if (result != NULL) {
    Py_CLEAR(result);
    if (args[OUT] != Py_None && !bump_versions(o, NULL)) goto done;
    result = lse != NULL ? PyTuple_Pack(2, o, lse) : Py_NewRef(o);
  }
done:
  Py_XDECREF(o);
  Py_XDECREF(lse);
  return result;
}

/* explain(the arguments of attend, arch, multiprocessors): (form, kernel, precision, launches,
 * workspace_bytes, error, reason, arch, multiprocessors), for tensors on any device, of which only
 * dtypes, shapes and strides are read. The numbers are those of attune_sdpa_explanation. None: the
 * library does not take them as they are. */
static PyObject *explain(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  if (count != ARGUMENTS + 2) {
    return PyErr_Format(PyExc_TypeError, "explain takes %d arguments, not %zd", ARGUMENTS + 2, count);
  }
  attention a;
  memset(&a, 0, sizeof a);
  a.look = look_anywhere;
  int32_t wants_lse = 0;
  if (!read_flag(args[RETURN_LSE], &wants_lse) || !read_arguments(args, &a)) Py_RETURN_NONE;
  attune_sdpa_params *p = &a.p;
  p->arch = (int32_t)PyLong_AsLong(args[ARGUMENTS]);
  p->multiprocessors = (int32_t)PyLong_AsLong(args[ARGUMENTS + 1]);
  if (PyErr_Occurred()) return NULL;
  if (wants_lse) p->lse = (float *)(void *)&given;
  if (args[OUT] != Py_None) {
    if (!set_output(args[OUT], &a)) Py_RETURN_NONE;
    p->out_dtype = a.o.dtype;
  } else if (choose_rows_first(&a)) {
    order_rows_first(p);
  }
  p->workspace = &given;
  attune_sdpa_explanation e = {.struct_size = sizeof e};
  const attune_sdpa_status status = attune_sdpa_explain(p, &e);
  if (status != ATTUNE_SDPA_OK) return raise(status);
  return Py_BuildValue("ssiindsii", e.form, e.kernel, (int)e.precision, (int)e.launches,
                       (Py_ssize_t)e.workspace_bytes, e.relative_error, e.reason, (int)e.arch,
                       (int)e.multiprocessors);
}

/* ---- quantisers ------------------------------------------------------------------------------ */

/* quantize(q, k, v, smooth_k, hadamard, y_q, y_k, y_v, descale_q, descale_k, descale_v, mean_k):
 * tensors of which Python has checked or made all; None for what is not quantised. True. */
static PyObject *quantize(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  enum { SMOOTH = 3, HADAMARD_ROWS, OUTPUTS, MEAN_K = OUTPUTS + 6, COUNT };
  (void)module;
  if (count != COUNT) return PyErr_Format(PyExc_TypeError, "quantize takes %d arguments", COUNT);
  view in[3] = {0}, out[7] = {0};
  attune_quantize_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  int64_t *const strides[] = {p.q_stride, p.k_stride, p.v_stride};
  for (int i = 0; i < 3; ++i) {
    if (!look_optional(args[i], &in[i])) Py_RETURN_NONE;
    if (in[i].data != NULL && (in[i].rank != 4 || !set_strides(&in[i], strides[i]))) Py_RETURN_NONE;
  }
  for (int i = 0; i < 7; ++i) {
    if (!look_optional(args[OUTPUTS + i], &out[i])) Py_RETURN_NONE;
  }
  const view *any = in[0].data != NULL ? &in[0] : &in[1];
  if (any->data == NULL || current_device() != any->device) {
    return PyErr_Clear(), Py_NewRef(Py_None);
  }
  p.q = in[0].data, p.k = in[1].data, p.v = in[2].data;
  p.y_q = out[0].data, p.y_k = out[1].data, p.y_v = out[2].data;
  p.descale_q = out[3].data, p.descale_k = out[4].data, p.descale_v = out[5].data;
  p.mean_k = out[6].data;
  p.batch = (int32_t)any->shape[0], p.head_dim = (int32_t)any->shape[3], p.dtype = any->dtype;
  p.heads = (int32_t)in[0].shape[1], p.queries = (int32_t)in[0].shape[2];
  p.kv_heads = (int32_t)in[1].shape[1], p.keys = (int32_t)in[1].shape[2];
  p.smooth_k = PyObject_IsTrue(args[SMOOTH]), p.hadamard = PyObject_IsTrue(args[HADAMARD_ROWS]);
  CUstream stream = NULL;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  if (!current_stream(any->device, &stream)) return NULL;
  p.workspace_bytes = attune_sdpa_quantize_workspace_bytes(&p);
  PyObject *workspace = NULL;
  if (p.workspace_bytes > 0) {
    workspace = take_workspace(any->device, stream, p.workspace_bytes, &p.workspace);
    if (workspace == NULL) return NULL;
  }
  LAUNCH(status, attune_sdpa_quantize, &p, stream, any->device);
  Py_XDECREF(workspace);
  if (status != ATTUNE_SDPA_OK) return raise(status);
  Py_RETURN_TRUE;
}

/* append(k, v, k_cache, v_cache, lengths, page_table, descale_k, descale_v, trusted): True. */
static PyObject *append(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  enum { NEW_K, NEW_V, K_CACHE, V_CACHE, ROWS, TABLE, DESCALE_K, DESCALE_V, IS_TRUSTED, COUNT };
  (void)module;
  if (count != COUNT) return PyErr_Format(PyExc_TypeError, "append takes %d arguments", COUNT);
  if (args[IS_TRUSTED] != Py_True && is_observed(args, 4, Py_None)) Py_RETURN_NONE;
  view x[IS_TRUSTED] = {0};
  for (int i = 0; i < IS_TRUSTED; ++i) {
    if (!(i == TABLE ? look_optional(args[i], &x[i]) : look(args[i], &x[i]))) Py_RETURN_NONE;
  }
  attune_append_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.flags = ATTUNE_SDPA_TRUST_POINTERS; /* the device of every tensor is compared here */
  const view *k = &x[NEW_K], *v = &x[NEW_V], *cache = &x[K_CACHE];
  const int device = k->device;
  const bool paged = x[TABLE].data != NULL;
  if (k->rank != 4 || v->rank != 4 || cache->rank != 4 || !is_half(k) || v->dtype != k->dtype) {
    Py_RETURN_NONE;
  }
  const int64_t *n = k->shape, *c = cache->shape;
  const int64_t any[] = {-1, n[1], -1, n[3]}, table[] = {n[0], -1};
  if (memcmp(n, v->shape, sizeof v->shape) != 0 || v->device != device ||
      !is_array(cache, E4M3, device, 4, any) || !is_array(&x[V_CACHE], E4M3, device, 4, c) ||
      !is_vector(&x[ROWS], INT32, device, n[0]) || !is_factor(&x[DESCALE_K], device, n[0], n[1]) ||
      !is_factor(&x[DESCALE_V], device, n[0], n[1]) || !set_strides(k, p.k_stride) ||
      !set_strides(v, p.v_stride) || (!paged && c[0] != n[0]) ||
      (paged && !is_array(&x[TABLE], INT32, device, 2, table)) ||
      current_device() != device) {
    return PyErr_Clear(), Py_NewRef(Py_None);
  }
  if (args[IS_TRUSTED] != Py_True && may_overlap(cache, &x[V_CACHE])) Py_RETURN_NONE;
  for (int i = 0; i < IS_TRUSTED && args[IS_TRUSTED] != Py_True; ++i) {
    if (i == K_CACHE || i == V_CACHE) continue;
    if (may_overlap(&x[i], cache) || may_overlap(&x[i], &x[V_CACHE])) Py_RETURN_NONE;
  }
  p.k = k->data, p.v = v->data, p.k_cache = cache->data, p.v_cache = x[V_CACHE].data;
  p.descale_k = x[DESCALE_K].data, p.descale_v = x[DESCALE_V].data;
  p.lengths = x[ROWS].data, p.page_table = x[TABLE].data;
  p.batch = (int32_t)n[0], p.kv_heads = (int32_t)n[1];
  p.rows = (int32_t)n[2], p.head_dim = (int32_t)n[3], p.dtype = k->dtype;
  if (paged) {
    p.pages = (int32_t)c[0], p.page_size = (int32_t)c[2], p.max_pages = (int32_t)x[TABLE].shape[1];
  } else {
    p.capacity = (int32_t)c[2];
  }
  CUstream stream = NULL;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  if (!current_stream(device, &stream)) return NULL;
  LAUNCH(status, attune_sdpa_append, &p, stream, device);
  if (status != ATTUNE_SDPA_OK) return raise(status);
  if (!bump_versions(args[K_CACHE], args[V_CACHE])) return NULL;
  Py_RETURN_TRUE;
}

/* ---- the module ------------------------------------------------------------------------------ */

static PyObject *version(PyObject *module, PyObject *none) {
  (void)module, (void)none;
  return PyUnicode_FromString(attune_sdpa_version());
}

static const dl_exchange *usable(PyObject *capsule) {
  if (capsule == Py_None) return NULL;
  const dl_exchange *e = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  PyErr_Clear();
  while (e != NULL && e->major != DL_MAJOR) e = e->previous;
  return e != NULL && e->view != NULL ? e : NULL;
}

static void bind_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return;
  void *device = dlsym(library, "cuCtxGetDevice");
  void *capturing = dlsym(library, "cuStreamIsCapturing");
  memcpy(&driver.cuCtxGetDevice, &device, sizeof device);
  memcpy(&driver.cuStreamIsCapturing, &capturing, sizeof capturing);
}

/* configure(tensor, parameter, exchange, dtypes, functions, device_type): functions are those of
 * the struct above in their order; device_type is that of DLPack, CUDA but in tests. */
static PyObject *configure(PyObject *module, PyObject *args) {
  PyObject *tensor, *parameter, *exchange, *dtypes, *functions;
  int device_type;
  (void)module;
  if (!PyArg_ParseTuple(args, "OOOO!O!i", &tensor, &parameter, &exchange, &PyDict_Type, &dtypes,
                        &PyTuple_Type, &functions, &device_type)) {
    return NULL;
  }
  PyObject **into[] = {&torch.modes, &torch.grad_enabled, &torch.current_device, &torch.raw_stream,
                       &torch.empty, &torch.workspace,    &torch.bind,           &torch.capturing,
                       &torch.tracing, &torch.transforms, &torch.forward_ad, &torch.bump,
                       &torch.is_neg, &torch.gpu};
  const Py_ssize_t wanted = sizeof into / sizeof *into;
  if (PyTuple_Size(functions) != wanted) {
    return PyErr_Format(PyExc_ValueError, "%zd functions are wanted", wanted);
  }
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    Py_XDECREF(*into[i]);
    *into[i] = Py_NewRef(PyTuple_GetItem(functions, i));
  }
  torch.tensor = (PyTypeObject *)Py_NewRef(tensor);
  torch.parameter = (PyTypeObject *)Py_NewRef(parameter);
  torch.exchange = usable(exchange);
  torch.dtypes = Py_NewRef(dtypes);
  Py_ssize_t at = 0;
  for (PyObject *dtype, *number; PyDict_Next(dtypes, &at, &dtype, &number);) {
    const long i = PyLong_AsLong(number);
    if (i < 0 || i > INT64) return PyErr_Format(PyExc_ValueError, "there is no dtype %ld", i);
    dtype_objects[i] = dtype;
  }
  torch.device_type = device_type;
  memset(gpus, 0, sizeof gpus);
  memset(&driver, 0, sizeof driver);
  if (device_type == DL_CUDA) bind_driver();
  torch.on_device = PyUnicode_InternFromString(device_type == DL_CPU ? "is_cpu" : "is_cuda");
  torch.requires_grad = PyUnicode_InternFromString("requires_grad");
  torch.shape = PyUnicode_InternFromString("shape");
  torch.stride = PyUnicode_InternFromString("stride");
  torch.dtype = PyUnicode_InternFromString("dtype");
  torch.data_ptr = PyUnicode_InternFromString("data_ptr");
  torch.get_device = PyUnicode_InternFromString("get_device");
  torch.current_level = PyUnicode_InternFromString("_current_level");
  torch.precisions[ATTUNE_SDPA_PRECISION_AUTO] = PyUnicode_InternFromString("auto");
  torch.precisions[ATTUNE_SDPA_PRECISION_FP8] = PyUnicode_InternFromString("fp8");
  torch.precisions[ATTUNE_SDPA_PRECISION_16] = PyUnicode_InternFromString("16");
  torch.module = PyUnicode_InternFromString("attune._call");
  kept_workspace *kept = kept_of_thread();
  if (kept == NULL) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  Py_CLEAR(kept->tensor);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, NULL},
    {"attend", (PyCFunction)(void (*)(void))attend, METH_FASTCALL, NULL},
    {"explain", (PyCFunction)(void (*)(void))explain, METH_FASTCALL, NULL},
    {"quantize", (PyCFunction)(void (*)(void))quantize, METH_FASTCALL, NULL},
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, NULL},
    {"version", version, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "attune._call", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__call(void) { return PyModule_Create(&definition); }
