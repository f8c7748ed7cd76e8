//go:build linux

package cuda

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
	"attune/internal/tensormap"
)

// increment is a kernel of an input, an output and their size.
func increment(f *fake) *fakeKernel {
	return &fakeKernel{milliseconds: 0.01, run: func(args *unsafe.Pointer) {
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
		Driver: got.Driver, // has a release in front where there is a driver
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
		{"cuInit", "no GPU: start the driver: CUDA error 100 (words for 100)", true},
		{"cuDeviceGetCount", "no GPU: count the GPUs: CUDA error 100 (words for 100)", true},
		{"cuDeviceGet", "find the GPU: CUDA error 100 (words for 100)", false},
		{"cuDeviceTotalMem_v2", "ask the GPU for its facts: CUDA error 100 (words for 100)", false},
		{"cuDevicePrimaryCtxRetain", "make a context: CUDA error 100 (words for 100)", false},
		{"cuCtxSetCurrent", "make the context current: CUDA error 100 (words for 100)", false},
	} {
		f := newFake()
		f.fails[c.function] = 100
		m, err := openWith(f.driver, 0)
		if m != nil || err == nil || err.Error() != c.want || errors.Is(err, device.ErrNoDevice) != c.none {
			t.Errorf("%s: got %v, %v; want %q", c.function, m, err, c.want)
		}
		if errors.As(err, new(*device.Fault)) {
			t.Errorf("%s: %v is held against a kernel", c.function, err)
		}
	}
	for _, index := range []int{-1, 2} {
		_, err := openWith(newFake().driver, index)
		if !errors.Is(err, device.ErrNoDevice) || !strings.Contains(err.Error(), "and the driver shows 2") {
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
		t.Errorf("calls %v; want two launches, each waited for", f.calls)
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
	if f.modules != 3 {
		t.Errorf("%d images were loaded; want 3", f.modules)
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

// What the driver is handed lies as cuda.h has it.
func TestLaunchLayout(t *testing.T) {
	var c launchConfig
	var a launchAttribute
	got := []uintptr{
		unsafe.Sizeof(c), unsafe.Offsetof(c.block), unsafe.Offsetof(c.sharedBytes), unsafe.Offsetof(c.stream), unsafe.Offsetof(c.attributes),
		unsafe.Offsetof(c.count), unsafe.Sizeof(a), unsafe.Offsetof(a.cluster),
	}
	if diff := cmp.Diff([]uintptr{56, 12, 24, 32, 40, 48, 72, 8}, got); diff != "" {
		t.Error(diff)
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
	if n := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 4: [2 2 2]"); n != 2 || f.kernels["k"].large != 0 {
		t.Errorf("calls %v, large clusters %d; want two launches in clusters of 8", f.calls, f.kernels["k"].large)
	}
	f.calls = nil
	if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	if n, all := f.count("k<<<4,2,2; 4,5,6; 0>>> attribute 4: [2 2 2]"), f.count("cuLaunchKernelEx"); n != all || n < 3 {
		t.Errorf("%d of %d launches of a timing are in clusters", n, all)
	}
	job.Cluster = [3]int{4, 2, 2}
	if _, err := device.Run(m, job); err != nil || f.kernels["k"].large != 1 {
		t.Errorf("clusters of 16: %v, allowed %d", err, f.kernels["k"].large)
	}
	f.fails["cuFuncSetAttribute"] = 1
	if _, err := device.Run(m, job); !isFault(err, "CUDA error 1") || !strings.HasPrefix(err.Error(), "allow the kernel clusters of 16 blocks: ") {
		t.Errorf("got %v", err)
	}
}

// mapped is a job with a tensor map of its input and one of its output.
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

// The driver encodes the maps, with the addresses of the buffers of that launch.
func TestTensorMaps(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	var seen []uint64
	f.kernels["k"].run = func(args *unsafe.Pointer) {
		arg := unsafe.Slice(args, 5)
		for i, of := range map[int]int{3: 0, 4: 1} {
			if at, want := *(*uint64)(arg[i]), *(*uint64)(arg[of]); at != want {
				t.Errorf("argument %d is a map of %#x, and argument %d is at %#x", i, at, of, want)
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
	// Of the run, and of each job the copy of its first launch and that of the one outside of a graph.
	if n := len(slices.Compact(seen)); n != 5 {
		t.Errorf("maps of %d inputs; want 5", n)
	}
	f.nothingLeft(t)
	f.fails["cuTensorMapEncodeTiled"] = 1
	_, err := device.Run(m, mapped())
	if want := "argument 3: encode a tensor map of [20 2 2], in boxes of [16 2 1]: CUDA error 1 (words for 1)"; err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if errors.As(err, new(*device.Fault)) {
		t.Errorf("%v is held against the kernel", err)
	}
	f.nothingLeft(t)
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

// What a kernel is to blame for is a fault; what is missing on the machine is not.
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
			"load the image: CUDA_ERROR_INVALID_PTX (words for 218; the driver says: ptxas, line 3; error : Unknown symbol)", "CUDA_ERROR_INVALID_PTX",
		},
		{"cuModuleLoadDataEx", 218, "", "load the image: CUDA_ERROR_INVALID_PTX (words for 218)", "CUDA_ERROR_INVALID_PTX"},
		{"cuModuleLoadDataEx", 209, "", "load the image: CUDA_ERROR_NO_BINARY_FOR_GPU (words for 209)", ""},
		{"cuModuleLoadDataEx", 222, "Unsupported .version 9.9", "load the image: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (words for 222); " +
			"the driver says: Unsupported .version 9.9; its PTX is of a newer CUDA than the driver offers: ", ""},
		{"cuModuleLoadDataEx", 999, "", "load the image: CUDA error 999 ()", "CUDA error 999"},
		{"cuModuleGetFunction", notFound, "", "find the function k in the image: CUDA_ERROR_NOT_FOUND (words for 500)", "CUDA_ERROR_NOT_FOUND"},
		{"cuFuncGetAttribute", 1, "", "ask for a function's attributes: CUDA error 1 (words for 1)", ""},
		{"cuMemAlloc_v2", 2, "", "argument 0, 4 bytes: take 8196 bytes of GPU memory: CUDA_ERROR_OUT_OF_MEMORY (words for 2)", ""},
		{"cuMemcpyHtoD_v2", 1, "", "copy to the GPU: CUDA error 1 (words for 1)", ""},
		{"cuMemcpyDtoH_v2", 1, "", "copy from the GPU: CUDA error 1 (words for 1)", ""},
		{"cuLaunchKernelEx", 701, "", "launch the kernel: CUDA error 701 (words for 701)", "CUDA error 701"},
		{"cuCtxSynchronize", illegalAddress, "", "run the kernel: CUDA_ERROR_ILLEGAL_ADDRESS (words for 700)", "CUDA_ERROR_ILLEGAL_ADDRESS"},
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

// A log that fills its buffer has no end of its own.
func TestLongLoaderLog(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	f.fails["cuModuleLoadDataEx"], f.log = 218, strings.Repeat("x", 1<<20)
	_, err := device.Run(m, newJob("k"))
	if err == nil || strings.Count(err.Error(), "x") < 1<<10 || strings.Count(err.Error(), "x") > 1<<14 {
		t.Errorf("got %d bytes", len(err.Error()))
	}
}

func TestTimeOnFake(t *testing.T) {
	f := newFakeWith("slow", "fast")
	f.kernels["slow"].milliseconds, f.kernels["fast"].milliseconds = 0.3, 0.002
	m := f.open(t)
	got, err := m.Time([]device.Job{newJob("slow"), newJob("fast")}, device.Plan{Samples: 3})
	if err != nil {
		t.Fatal(err)
	}
	unwatched := "there is no NVML here"
	want := []device.Series{
		{ // about five milliseconds
			Seconds: []float64{0.3e-3, 0.3e-3, 0.3e-3}, LaunchesPerSample: 16, Single: []float64{0.3e-3, 0.3e-3, 0.3e-3}, Unwatched: unwatched, Copies: 4,
		},
		{ // as many as there may be
			Seconds: []float64{2e-6, 2e-6, 2e-6}, LaunchesPerSample: 50, Single: []float64{2e-6, 2e-6, 2e-6}, Unwatched: unwatched, Copies: 4,
		},
	}
	if diff := cmp.Diff(want, got, about, cmpopts.IgnoreFields(device.Series{}, "WarmSeconds")); diff != "" {
		t.Error(diff)
	}
	var samples []string
	for _, call := range f.calls {
		if strings.Contains(call, " x ") {
			samples = append(samples, call)
		}
	}
	inTurns := []string{ // each after one that is not looked at
		"16 x slow", "16 x slow", "50 x fast", "50 x fast", "50 x fast", "50 x fast",
		"16 x slow", "16 x slow", "16 x slow", "16 x slow", "50 x fast", "50 x fast",
	}
	if diff := cmp.Diff(inTurns, samples[max(0, len(samples)-12):]); diff != "" {
		t.Error(diff)
	}
	warm := 0.0
	for _, call := range samples[:len(samples)-12] {
		if call == "50 x fast" {
			warm += 50 * 2e-6
		}
	}
	if math.Abs(warm-got[1].WarmSeconds) > 1e-6 || warm < 2*windowSeconds || warm > 3*windowSeconds {
		t.Errorf("%g s of warming up, and the series says %g s; want two windows of %g s", warm, got[1].WarmSeconds, windowSeconds)
	}
	f.nothingLeft(t)
	if len(f.threads) != 1 {
		t.Errorf("%d threads called the driver; want the one that has the context", len(f.threads))
	}
}

func (f *fake) nothingLeft(t *testing.T) {
	t.Helper()
	if len(f.memory)+len(f.graphs) != 0 || f.captures {
		t.Errorf("%d buffers and %d graphs are left, capturing %t", len(f.memory), len(f.graphs), f.captures)
	}
}

func TestOneClock(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	f.fails["cuEventCreate"] = 2
	for range 2 {
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err == nil || errors.As(err, new(*device.Fault)) {
			t.Errorf("got %v; want an error that is no fault", err)
		}
	}
	delete(f.fails, "cuEventCreate")
	f.calls = nil
	for range 3 {
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count("cuStreamCreate"); n != 1 {
		t.Errorf("%d streams were made for 3 timings; want 1", n)
	}
}

// Whatever fails in a timing is the kernel's, and nothing is left behind.
func TestTimeFails(t *testing.T) {
	for _, function := range []string{
		"cuModuleLoadDataEx", "cuLaunchKernelEx", "cuCtxSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
		"cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuEventSynchronize", "cuEventElapsedTime",
	} {
		f := newFakeWith("k", "other")
		m := f.open(t)
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil {
			t.Fatal(err)
		}
		f.fails[function] = illegalAddress
		_, err := m.Time([]device.Job{newJob("k"), newJob("other")}, device.Plan{Samples: 1})
		if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: got %v; want a fault", function, err)
		}
		f.nothingLeft(t)
	}
}

// A failure of the second job, of a launch that is being captured, and of a sample.
func TestTimeFailsLate(t *testing.T) {
	check := func(name string, spoil func(f *fake)) {
		t.Helper()
		f := newFakeWith("k", "other")
		m := f.open(t)
		spoil(f)
		_, err := m.Time([]device.Job{newJob("k"), newJob("other")}, device.Plan{Samples: 1})
		if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: got %v; want a fault", name, err)
		}
		f.nothingLeft(t)
	}
	check("the second job", func(f *fake) {
		f.kernels["other"].run = func(*unsafe.Pointer) { f.fails["cuCtxSynchronize"] = illegalAddress }
	})
	check("a captured launch", func(f *fake) {
		begin := f.cuStreamBeginCapture_v2
		f.cuStreamBeginCapture_v2 = func(stream handle, mode int32) result {
			f.fails["cuLaunchKernelEx"] = illegalAddress
			return begin(stream, mode)
		}
	})
	check("a sample", func(f *fake) {
		replay := f.cuGraphLaunch
		f.cuGraphLaunch = func(exec, stream handle) result {
			if f.graphs[exec][0].name == "k" && slices.Contains(f.calls, "50 x other") { // both are ready
				return illegalAddress
			}
			return replay(exec, stream)
		}
	})
}

func TestTimeOfNothing(t *testing.T) {
	f := newFakeWith("k")
	f.kernels["k"].milliseconds = 0
	_, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
	if err == nil || err.Error() != "replay a graph of k: the events say 0 ms" {
		t.Errorf("got %v", err)
	}
	f.nothingLeft(t)
}

func TestTimeRefusesBadJobs(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	for _, change := range []func(*device.Job){
		func(j *device.Job) { j.Block[1] = 0 },
		func(j *device.Job) { j.Args[2].Scalar = []byte{} },
	} {
		job := newJob("k")
		change(&job)
		if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1}); err == nil || !strings.HasPrefix(err.Error(), "job k: ") {
			t.Errorf("got %v; want the job refused", err)
		}
	}
	f.nothingLeft(t)
}
