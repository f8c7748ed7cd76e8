//go:build linux

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/tensormap"
)

// increment is a kernel with three arguments: input, output and their size.
func increment(f *fake) *fakeKernel {
	return &fakeKernel{milliseconds: 0.01, sizes: []int{8, 8, 4}, run: func(args *unsafe.Pointer) {
		arg := unsafe.Slice(args, 3)
		in, out, n := f.at(*(*uint64)(arg[0])), f.at(*(*uint64)(arg[1])), *(*int32)(arg[2])
		for i := range n {
			out[i] = in[i] + 1
		}
	}}
}

func newJob(entry string) device.Job {
	return device.Job{
		Image: []byte("some PTX"), Entry: entry, Grid: [3]int{1, 2, 3}, Block: [3]int{4, 5, 6},
		Args: []device.Arg{device.In([]byte{10, 20, 30, 40}), device.Out(4), device.Int32(4)},
	}
}

func newFakeWith(names ...string) *fake {
	f := newFake()
	for _, name := range names {
		f.kernels[name] = increment(f)
	}
	return f
}

func isFault(err error, code string) bool {
	var fault *device.Fault
	return errors.As(err, &fault) && fault.Code == code
}

func TestFactsOfFake(t *testing.T) {
	got := newFake().open(t).Facts()
	want := device.Facts{
		Kind: "cuda", Name: "A fake GPU", UUID: "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", Arch: "sm_90", Multiprocessors: 132,
		MemoryBytes: 141 << 30, L2Bytes: 60 << 20, SharedBlockLimit: 227 << 10, ClockKHz: 1980000, MemoryClockKHz: 3201000,
		Driver: got.Driver, // begins with a release on a machine with a driver
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !strings.HasSuffix(got.Driver, "CUDA 13.0") {
		t.Errorf("driver %q", got.Driver)
	}
}

func TestOpenFails(t *testing.T) {
	for _, c := range []struct {
		function string
		want     string
		none     bool // no device
	}{
		{"cuInit", "no GPU: start the driver: CUDA error 100 (text of 100)", true},
		{"cuDeviceGetCount", "no GPU: count the GPUs: CUDA error 100 (text of 100)", true},
		{"cuDeviceGet", "find the GPU: CUDA error 100 (text of 100)", false},
		{"cuDeviceTotalMem_v2", "query the GPU: CUDA error 100 (text of 100)", false},
		{"cuDevicePrimaryCtxRetain", "make a context: CUDA error 100 (text of 100)", false},
		{"cuCtxSetCurrent", "make the context current: CUDA error 100 (text of 100)", false},
	} {
		f := newFake()
		f.fails[c.function] = 100
		m, err := openWith(f.driver, 0)
		if m != nil || err == nil || err.Error() != c.want || errors.Is(err, device.ErrNoDevice) != c.none {
			t.Errorf("%s: got %v, %v; want %q", c.function, m, err, c.want)
		}
		if errors.As(err, new(*device.Fault)) {
			t.Errorf("%s: %v is a fault of the kernel", c.function, err)
		}
	}
	for _, index := range []int{-1, 2} {
		_, err := openWith(newFake().driver, index)
		if !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "the driver shows 2") {
			t.Errorf("GPU %d: %v", index, err)
		}
	}
}

func TestRunOnFake(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	got, err := device.Run(m, newJob("k"))
	if err != nil {
		t.Fatal(err)
	}
	want := &device.Outcome{
		Outputs: [][]byte{{11, 21, 31, 41}},
		Loaded:  device.Attributes{Registers: 40, StaticSharedBytes: 1024, LocalBytes: 16, MaxThreads: 512},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := f.count("k<<<1,2,3; 4,5,6; 0>>>"); n != 2 || f.count("cuCtxSynchronize") != 2 || f.count("cuFuncSetAttribute") != 0 {
		t.Errorf("calls %v; want two launches, each followed by a synchronisation", f.calls)
	}
	if len(f.memory) != 0 {
		t.Errorf("%d buffers were not freed", len(f.memory))
	}
	if len(f.threads) != 1 {
		t.Errorf("%d threads called the driver; want the one that has the context", len(f.threads))
	}
}

func TestImagesAreLoadedOnce(t *testing.T) {
	f := newFakeWith("k", "other")
	m := f.open(t)
	job := newJob("k")
	changed := job
	changed.Image = []byte("other PTX")
	for _, j := range []device.Job{job, job, changed, newJob("other"), job} {
		if _, err := device.Run(m, j); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.modules) != 3 {
		t.Errorf("%d images were loaded; want 3", len(f.modules))
	}
}

func TestDynamicSharedMemory(t *testing.T) {
	f := newFakeWith("k")
	job := newJob("k")
	job.DynamicSharedBytes = 100 << 10
	m := f.open(t)
	if _, err := device.Run(m, job); err != nil {
		t.Fatal(err)
	}
	if f.kernels["k"].shared != 100<<10 || f.count("k<<<1,2,3; 4,5,6; 102400>>>") != 2 {
		t.Errorf("allowed %d bytes, calls %v", f.kernels["k"].shared, f.calls)
	}
	f.fails["cuFuncSetAttribute"] = 1
	_, err := device.Run(m, job)
	if !isFault(err, "CUDA error 1") || !strings.HasPrefix(err.Error(), "allow the kernel 102400 bytes of dynamic shared memory: ") {
		t.Errorf("got %v", err)
	}
}

// The structs that the driver reads have the layout of cuda.h.
func TestLaunchLayout(t *testing.T) {
	var c launchConfig
	var a launchAttribute
	got := []uintptr{
		unsafe.Sizeof(c), unsafe.Offsetof(c.block), unsafe.Offsetof(c.sharedBytes), unsafe.Offsetof(c.stream), unsafe.Offsetof(c.attributes),
		unsafe.Offsetof(c.count), unsafe.Sizeof(a), unsafe.Offsetof(a.value),
	}
	if diff := cmp.Diff([]uintptr{56, 12, 24, 32, 40, 48, 72, 8}, got); diff != "" {
		t.Error(diff)
	}
}

// A cooperative launch has its attribute beside the cluster size, also in a graph.
func TestCooperative(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	job := newJob("k")
	job.Grid, job.Cooperative = [3]int{4, 2, 2}, true
	if _, err := device.Run(m, job); err != nil {
		t.Fatal(err)
	}
	if n := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 2: [1 0 0]"); n != 2 {
		t.Errorf("calls %v; want two cooperative launches", f.calls)
	}
	f.calls, job.Cluster = nil, [3]int{2, 1, 1}
	if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	if n := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 4: [2 1 1] attribute 2: [1 0 0]"); n < 3 {
		t.Errorf("%d launches of a timing are cooperative; calls %v", n, f.calls)
	}
}

func TestClusters(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	job := newJob("k")
	job.Grid, job.Cluster = [3]int{4, 2, 2}, [3]int{2, 2, 2}
	if _, err := device.Run(m, job); err != nil {
		t.Fatal(err)
	}
	if n := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 4: [2 2 2]"); n != 2 || f.kernels["k"].nonPortable != 0 {
		t.Errorf("calls %v, non-portable clusters %d; want two launches in clusters of 8", f.calls, f.kernels["k"].nonPortable)
	}
	f.calls = nil
	if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, call := range f.calls {
		if strings.HasPrefix(call, "k<<<") {
			all++
		}
	}
	if n := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 4: [2 2 2]"); n != all || n < 3 {
		t.Errorf("%d of %d launches of a timing are in clusters", n, all)
	}
	job.Cluster = [3]int{4, 2, 2}
	if _, err := device.Run(m, job); err != nil || f.kernels["k"].nonPortable != 1 {
		t.Errorf("clusters of 16: %v, allowed %d", err, f.kernels["k"].nonPortable)
	}
	f.fails["cuFuncSetAttribute"] = 1
	if _, err := device.Run(m, job); !isFault(err, "CUDA error 1") || !strings.HasPrefix(err.Error(), "allow the kernel clusters of 16 blocks: ") {
		t.Errorf("got %v", err)
	}
}

// mapped is a job with tensor maps of its input and of its output.
func mapped() device.Job {
	job := newJob("k")
	job.Args[0], job.Args[1] = device.In(make([]byte, 3*64)), device.Out(64)
	of := func(arg int, m tensormap.Map) device.Arg {
		return device.Arg{TensorMap: &device.TensorMap{Arg: arg, Map: m}}
	}
	job.Args = append(job.Args,
		of(0, tensormap.Map{
			Type: "bf16", Dims: []int{20, 2, 2}, Strides: []int{48, 96}, Box: []int{16, 2, 1}, ElementStrides: []int{1, 2, 1},
			Interleave: "none", Swizzle: "64B", OOB: "nan", L2Promotion: "256B",
		}),
		of(1, tensormap.Map{Type: "u8", Dims: []int{64}, Box: []int{64}}))
	return job
}

// The driver encodes the tensor maps with the buffer addresses of that launch.
func TestTensorMaps(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	var seen []uint64
	f.kernels["k"].sizes = []int{8, 8, 4, tensormap.Bytes, tensormap.Bytes}
	f.kernels["k"].run = func(args *unsafe.Pointer) {
		arg := unsafe.Slice(args, 5)
		for i, of := range map[int]int{3: 0, 4: 1} {
			if at, want := *(*uint64)(arg[i]), *(*uint64)(arg[of]); at != want {
				t.Errorf("argument %d is a map of %#x, argument %d is at %#x", i, at, of, want)
			}
		}
		seen = append(seen, *(*uint64)(arg[3]))
	}
	if _, err := device.Run(m, mapped()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"map of type 9, rank 3: [20 2 2 0 0] by [48 96 0 0 0] in boxes of [16 2 1 0 0] every [1 2 1 0 0], 0 2 3 1",
		"map of type 0, rank 1: [64 0 0 0 0] by [0 0 0 0 0] in boxes of [64 0 0 0 0] every [1 0 0 0 0], 0 0 0 0",
	} {
		if f.count(want) != 1 {
			t.Errorf("calls %q; want %q", f.calls, want)
		}
	}
	if _, err := m.Time([]device.Job{mapped(), mapped()}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(seen)
	// One of the run, and five of each timed job: the four copies, and the one of the untimed launch.
	if n := len(slices.Compact(seen)); n != 11 {
		t.Errorf("maps of %d inputs; want 11", n)
	}
	f.expectAllFreed(t)
	f.fails["cuTensorMapEncodeTiled"] = 1
	_, err := device.Run(m, mapped())
	if want := "argument 3: encode a tensor map of [20 2 2], in boxes of [16 2 1]: CUDA error 1 (text of 1)"; err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if errors.As(err, new(*device.Fault)) {
		t.Errorf("%v is a fault of the kernel", err)
	}
	f.expectAllFreed(t)
}

func TestNoArguments(t *testing.T) {
	f := newFake()
	f.kernels["k"] = &fakeKernel{}
	job := newJob("k")
	job.Args = nil
	if _, err := device.Run(f.open(t), job); err != nil {
		t.Error(err)
	}
}

// An error that the kernel causes is a fault; a missing capability of the machine is not.
func TestErrorsOfFake(t *testing.T) {
	for _, c := range []struct {
		function string
		code     result
		log      string
		want     string
		fault    string // its code
	}{
		{
			"cuModuleLoadDataEx", 218, "ptxas, line 3; error : Unknown symbol\n",
			"load the image: CUDA_ERROR_INVALID_PTX (text of 218; driver log: ptxas, line 3; error : Unknown symbol)", "CUDA_ERROR_INVALID_PTX",
		},
		{"cuModuleLoadDataEx", 218, "", "load the image: CUDA_ERROR_INVALID_PTX (text of 218)", "CUDA_ERROR_INVALID_PTX"},
		{"cuModuleLoadDataEx", 209, "", "load the image: CUDA_ERROR_NO_BINARY_FOR_GPU (text of 209)", ""},
		{"cuModuleLoadDataEx", 222, "Unsupported .version 9.9", "load the image: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (text of 222); " +
			"driver log: Unsupported .version 9.9; the PTX needs a newer CUDA version than the driver supports: ", ""},
		{"cuModuleLoadDataEx", 999, "", "load the image: CUDA error 999 ()", "CUDA error 999"},
		{"cuModuleGetFunction", notFound, "", "find the function k in the image: CUDA_ERROR_NOT_FOUND (text of 500)", "CUDA_ERROR_NOT_FOUND"},
		{"cuFuncGetAttribute", 1, "", "query a function's attributes: CUDA error 1 (text of 1)", ""},
		{"cuMemAlloc_v2", 2, "", "argument 0, 4 bytes: allocate 8196 bytes of GPU memory: CUDA_ERROR_OUT_OF_MEMORY (text of 2)", ""},
		{"cuMemcpyHtoD_v2", 1, "", "copy to the GPU: CUDA error 1 (text of 1)", ""},
		{"cuMemcpyDtoH_v2", 1, "", "copy from the GPU: CUDA error 1 (text of 1)", ""},
		{"cuLaunchKernelEx", 701, "", "launch the kernel: CUDA error 701 (text of 701)", "CUDA error 701"},
		{"cuCtxSynchronize", illegalAddress, "", "run the kernel: CUDA_ERROR_ILLEGAL_ADDRESS (text of 700)", "CUDA_ERROR_ILLEGAL_ADDRESS"},
	} {
		f := newFakeWith("k")
		m := f.open(t)
		f.fails[c.function], f.log = c.code, c.log
		_, err := device.Run(m, newJob("k"))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", c.function, err, c.want)
		}
		if c.fault != "" && !isFault(err, c.fault) || c.fault == "" && errors.As(err, new(*device.Fault)) {
			t.Errorf("%s: %#v; want a fault: %t", c.function, err, c.fault != "")
		}
		if len(f.memory) != 0 {
			t.Errorf("%s: %d buffers were not freed", c.function, len(f.memory))
		}
	}
}

// A log that fills its buffer is not terminated by the driver.
func TestLongLoaderLog(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	f.fails["cuModuleLoadDataEx"], f.log = 218, strings.Repeat("x", 1<<20)
	_, err := device.Run(m, newJob("k"))
	if err == nil || strings.Count(err.Error(), "x") < 1<<10 || strings.Count(err.Error(), "x") > 1<<14 {
		t.Errorf("got %d bytes", len(err.Error()))
	}
}
