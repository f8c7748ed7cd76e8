//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"attune/internal/device"
)

// fake is a driver made of Go functions. Memory is byte slices, and kernels are found by name and
// advance a simulated clock. It records the calls that a machine makes.
type fake struct {
	*driver
	fails   map[string]result // functions of the driver that fail, and their results
	failAt  int               // number of the call that fails, counted by made from 1; 0 for none
	made    int               // calls that can fail
	failed  string            // function of that call
	log     string            // the loader's error log
	kernels map[string]*fakeKernel

	calls     []string
	threads   map[int]bool // threads that made calls
	memory    map[uint64][]byte
	graphs    map[handle][]fakeNode
	capture   []fakeNode
	captures  bool
	modules   map[handle]bool
	functions map[handle]*fakeFunction
	machine   *Machine // that open has opened
	last      uint64
	now       float64 // milliseconds
	flushes   float64 // time of one flush, milliseconds
	clears    float64 // milliseconds of a memset of scratch
	overhead  float64 // of a launch outside of a graph, milliseconds
	nvml      *nvml   // nil unless a test sets it
	events    map[handle]float64
	keep      [][]byte // C strings that callers may still read
}

type fakeKernel struct {
	name         string
	milliseconds float64 // of a launch; run may change it for the launch that it runs
	run          func(args *unsafe.Pointer)
	load         func() func(args *unsafe.Pointer) // makes run, for kernels with memory in their module
	sizes        []int                             // of the arguments in bytes; a kernel with sizes runs in graphs too
	shared       int32                             // maximum of dynamic shared memory, as set
	nonPortable  int32                             // 1 if non-portable cluster sizes are allowed
}

// fakeFunction is a kernel in a module.
type fakeFunction struct {
	*fakeKernel
	module handle
	loaded func(args *unsafe.Pointer) // nil for a kernel without load
	limit  uint32                     // of dynamic shared memory in this module
}

// fakeNode is a node of a graph, with copies of its arguments.
type fakeNode struct {
	*fakeFunction
	args []unsafe.Pointer
}

func (k *fakeFunction) node(params *unsafe.Pointer) fakeNode {
	n := fakeNode{fakeFunction: k}
	for i, size := range k.sizes {
		data := bytes.Clone(unsafe.Slice((*byte)(unsafe.Slice(params, i+1)[i]), size))
		n.args = append(n.args, unsafe.Pointer(&data[0]))
	}
	return n
}

// launch runs a kernel and advances the clock.
func (f *fake) launch(k *fakeFunction, args *unsafe.Pointer) {
	if k.module != 0 && !f.modules[k.module] {
		panic("the module of " + k.name + " is unloaded")
	}
	switch {
	case args == nil:
	case k.loaded != nil:
		k.loaded(args)
	case k.run != nil:
		k.run(args)
	}
	f.now += k.milliseconds
}

const (
	illegalAddress = result(700)
	notFound       = result(500)
)

func newFake() *fake {
	f := &fake{
		fails: map[string]result{}, kernels: map[string]*fakeKernel{}, threads: map[int]bool{},
		memory: map[uint64][]byte{}, graphs: map[handle][]fakeNode{}, events: map[handle]float64{}, last: 1 << 20,
		modules: map[handle]bool{}, functions: map[handle]*fakeFunction{},
	}
	f.driver = &driver{}
	f.facts()
	f.loader()
	f.memories()
	f.streams()
	f.helpers()
	return f
}

// argument reads argument i of a kernel.
func argument[T any](args *unsafe.Pointer, i int) T { return *(*T)(unsafe.Slice(args, i+1)[i]) }

// helpers adds the kernels that the machine itself launches.
func (f *fake) helpers() {
	word := func(address uint64, i int) uint64 { return binary.LittleEndian.Uint64(f.at(address)[8*i:]) }
	f.kernels[emptyEntry] = &fakeKernel{milliseconds: 0.0006}
	f.kernels[advanceEntry] = &fakeKernel{sizes: []int{8}, run: func(args *unsafe.Pointer) {
		state := argument[uint64](args, 0)
		binary.LittleEndian.PutUint64(f.at(state), word(state, 0)+1)
	}}
	f.kernels[rotateEntry] = &fakeKernel{sizes: []int{8, 4, 8, 4}, run: func(args *unsafe.Pointer) {
		table, state := argument[uint64](args, 0), argument[uint64](args, 2)
		r := device.Rotation{Secret: word(state, 1), Count: word(state, 0), Step: argument[uint32](args, 3)}
		for i := range int(argument[uint32](args, 1)) {
			f.rotate(r, f.at(table)[32*i:][:32])
		}
	}}
	f.kernels[compareEntry] = &fakeKernel{sizes: []int{8, 4, 8}, run: func(args *unsafe.Pointer) {
		table, results := argument[uint64](args, 0), argument[uint64](args, 2)
		for i := range int(argument[uint32](args, 1)) {
			a, b := f.at(word(table, 3*i)), f.at(word(table, 3*i+1))
			for j := range word(table, 3*i+2) {
				if a[j] != b[j] {
					result := f.at(results)[16*i:]
					binary.LittleEndian.PutUint64(result, binary.LittleEndian.Uint64(result)+1)
					binary.LittleEndian.PutUint64(result[8:], min(j, binary.LittleEndian.Uint64(result[8:])))
				}
			}
		}
	}}
}

// rotate does what the kernel attune_rotate does for one entry of its table.
func (f *fake) rotate(r device.Rotation, entry []byte) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(entry[8*i:]) }
	units, unit, index := int(word(2)), int(binary.LittleEndian.Uint32(entry[24:])), binary.LittleEndian.Uint32(entry[28:])
	to := f.at(word(0))[:units*unit]
	if word(1) == 0 {
		copy(to, bytes.Repeat([]byte{r.Poison(int(index))}, len(to)))
		return
	}
	shift := 0
	if index != 1<<32-1 {
		shift = r.Shift(int(index), units) * unit
	}
	from := f.at(word(1))[:units*unit]
	copy(to[copy(to, from[shift:]):], from[:shift])
}

// open opens a machine on the fake driver.
func (f *fake) open(t *testing.T) *Machine {
	t.Helper()
	m, err := openWith(f.driver, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.machine = m
	t.Cleanup(func() { m.Close() })
	m.loadNVML = func() (*nvml, error) {
		if f.nvml == nil {
			return nil, errors.New("there is no NVML here")
		}
		return f.nvml, nil
	}
	f.calls = nil
	return m
}

// called records a call and returns the result that the function must return.
func (f *fake) called(name string) result {
	f.calls = append(f.calls, name)
	f.threads[syscall.Gettid()] = true
	if f.made++; f.made == f.failAt {
		f.failed = name
		return illegalAddress
	}
	return f.fails[name]
}

func (f *fake) count(name string) int {
	n := 0
	for _, call := range f.calls {
		if call == name {
			n++
		}
	}
	return n
}

func (f *fake) next() uint64 { f.last++; return f.last }

func (f *fake) cString(into **byte, text string) {
	f.keep = append(f.keep, append([]byte(text), 0))
	*into = &f.keep[len(f.keep)-1][0]
}

func (f *fake) facts() {
	d := f.driver
	d.cuInit = func(uint32) result { return f.called("cuInit") }
	d.cuDriverGetVersion = func(v *int32) result { *v = 13000; return f.called("cuDriverGetVersion") }
	d.cuGetErrorName = func(code result, into **byte) result {
		name, ok := map[result]string{
			2: "CUDA_ERROR_OUT_OF_MEMORY", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU", 218: "CUDA_ERROR_INVALID_PTX",
			222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", illegalAddress: "CUDA_ERROR_ILLEGAL_ADDRESS", notFound: "CUDA_ERROR_NOT_FOUND",
		}[code]
		if !ok {
			return 1
		}
		f.cString(into, name)
		return 0
	}
	d.cuGetErrorString = func(code result, into **byte) result {
		if code == 999 {
			return 1
		}
		f.cString(into, fmt.Sprintf("text of %d", code))
		return 0
	}
	d.cuDeviceGetCount = func(n *int32) result { *n = 2; return f.called("cuDeviceGetCount") }
	d.cuDeviceGet = func(into *ordinal, index int32) result { *into = ordinal(index + 40); return f.called("cuDeviceGet") }
	d.cuDeviceGetName = func(name *byte, length int32, _ ordinal) result {
		copy(unsafe.Slice(name, length), "A fake GPU\x00")
		return f.called("cuDeviceGetName")
	}
	d.cuDeviceGetUuid_v2 = func(uuid *[16]byte, _ ordinal) result {
		for i := range uuid {
			uuid[i] = byte(i)
		}
		return f.called("cuDeviceGetUuid_v2")
	}
	d.cuDeviceGetAttribute = func(value *int32, attribute int32, _ ordinal) result {
		*value = map[int32]int32{
			deviceMajor: 9, deviceMinor: 0, deviceMultiprocessors: 132, deviceClockKHz: 1980000, deviceMemoryClockKHz: 3201000,
			deviceL2Bytes: 60 << 20, deviceSharedOptIn: 227 << 10,
		}[attribute]
		return f.called("cuDeviceGetAttribute")
	}
	d.cuDeviceTotalMem_v2 = func(bytes *uint64, _ ordinal) result { *bytes = 141 << 30; return f.called("cuDeviceTotalMem_v2") }
	d.cuDevicePrimaryCtxRetain = func(context *handle, gpu ordinal) result {
		*context = handle(gpu)
		return f.called("cuDevicePrimaryCtxRetain")
	}
	d.cuCtxSetCurrent = func(handle) result { return f.called("cuCtxSetCurrent") }
	d.cuCtxSynchronize = func() result { return f.called("cuCtxSynchronize") }
}

func (f *fake) loader() {
	d := f.driver
	d.cuModuleLoadDataEx = func(module *handle, image unsafe.Pointer, count uint32, options *int32, values *uintptr) result {
		if goString((*byte)(image)) == "" || !slices.Equal(unsafe.Slice(options, count), []int32{loadErrorLog, loadErrorLogBytes}) {
			return 1
		}
		value := unsafe.Slice((*unsafe.Pointer)(unsafe.Pointer(values)), count)
		copy(unsafe.Slice((*byte)(value[0]), unsafe.Slice(values, count)[1]), f.log)
		if code := f.called("cuModuleLoadDataEx"); code != 0 {
			return code
		}
		*module = handle(f.next())
		f.modules[*module] = true
		return 0
	}
	d.cuModuleUnload = func(module handle) result {
		if !f.modules[module] {
			return 1
		}
		delete(f.modules, module)
		return f.called("cuModuleUnload")
	}
	d.cuModuleGetFunction = func(function *handle, module handle, name string) result {
		k := f.kernels[name]
		if k == nil {
			return notFound
		}
		k.name = name
		loaded := &fakeFunction{fakeKernel: k, module: module, limit: 48 << 10}
		if k.load != nil {
			loaded.loaded = k.load()
		}
		*function = handle(f.next())
		f.functions[*function] = loaded
		return f.called("cuModuleGetFunction")
	}
	d.cuFuncGetAttribute = func(value *int32, attribute int32, _ handle) result {
		*value = map[int32]int32{
			functionRegisters: 40, functionStaticShared: 1024, functionLocalBytes: 16, functionMaxThreads: 512,
		}[attribute]
		return f.called("cuFuncGetAttribute")
	}
	d.cuFuncSetAttribute = func(function handle, attribute, value int32) result {
		switch attribute {
		case functionDynamicShared:
			f.functions[function].shared, f.functions[function].limit = value, uint32(value)
		case functionNonPortableCluster:
			f.functions[function].nonPortable = value
		default:
			return 1
		}
		return f.called("cuFuncSetAttribute")
	}
}

func (f *fake) memories() {
	d := f.driver
	d.cuMemAlloc_v2 = func(address *uint64, bytes uint64) result {
		if code := f.called("cuMemAlloc_v2"); code != 0 {
			return code
		}
		if bytes == 0 {
			return 1
		}
		*address = f.next() << 32
		f.memory[*address] = make([]byte, bytes)
		return 0
	}
	d.cuMemFree_v2 = func(address uint64) result { delete(f.memory, address); return f.called("cuMemFree_v2") }
	d.cuMemcpyHtoD_v2 = func(to uint64, from unsafe.Pointer, bytes uint64) result {
		copy(f.at(to), unsafe.Slice((*byte)(from), bytes))
		return f.called("cuMemcpyHtoD_v2")
	}
	d.cuMemsetD32Async = func(to uint64, _ uint32, words uint64, stream handle) result {
		if code := f.called("cuMemsetD32Async"); code != 0 {
			return code
		}
		if uint64(len(f.at(to))) != 4*words || f.captures && stream == 0 {
			return 1
		}
		flush := &fakeFunction{fakeKernel: &fakeKernel{name: "flush", milliseconds: f.flushes}}
		if f.captures {
			f.capture = append(f.capture, fakeNode{fakeFunction: flush})
		} else {
			f.launch(flush, nil)
		}
		return 0
	}
	d.cuMemsetD8Async = func(to uint64, value uint32, bytes uint64, stream handle) result {
		if code := f.called("cuMemsetD8Async"); code != 0 {
			return code
		}
		if uint64(len(f.at(to))) < bytes || f.captures && stream == 0 || value != 0 {
			return 1
		}
		node := &fakeFunction{fakeKernel: &fakeKernel{name: "clear", milliseconds: f.clears}}
		if f.captures {
			f.capture = append(f.capture, fakeNode{fakeFunction: node})
		} else {
			f.launch(node, nil)
		}
		return 0
	}
	d.cuMemcpyDtoH_v2 = func(to unsafe.Pointer, from uint64, bytes uint64) result {
		copy(unsafe.Slice((*byte)(to), bytes), f.at(from))
		return f.called("cuMemcpyDtoH_v2")
	}
	d.cuTensorMapEncodeTiled = func(into unsafe.Pointer, dtype int32, rank uint32, address uint64, dims, strides *[5]uint64, box, steps *[5]uint32,
		interleave, swizzle, l2Promotion, oobFill int32,
	) result {
		f.calls = append(f.calls, fmt.Sprintf("map of type %d, rank %d: %d by %d in boxes of %d every %d, %d %d %d %d",
			dtype, rank, *dims, *strides, *box, *steps, interleave, swizzle, l2Promotion, oobFill))
		if uintptr(into)%128 != 0 || address%16 != 0 {
			return 1
		}
		*(*uint64)(into) = address
		return f.called("cuTensorMapEncodeTiled")
	}
}

// at is the memory from an address to the end of its allocation.
func (f *fake) at(address uint64) []byte { return f.memory[address>>32<<32][address&(1<<32-1):] }

// describe describes a graph, such as "3 x k" or "3 x flush k".
func describe(graph []fakeNode) string {
	names := []string{graph[0].name}
	for _, k := range graph[1:] {
		if !slices.Contains(names, k.name) {
			names = append(names, k.name)
		}
	}
	return fmt.Sprintf("%d x %s", len(graph)/len(names), strings.Join(names, " "))
}

// launchText is a launch in the syntax of CUDA C++, followed by the cluster size.
func launchText(c *launchConfig) string {
	grid, block := fmt.Sprint(c.grid), fmt.Sprint(c.block)
	text := strings.ReplaceAll(fmt.Sprintf("<<<%s; %s; %d>>>", grid[1:len(grid)-1], block[1:len(block)-1], c.sharedBytes), " ", ",")
	for _, a := range unsafe.Slice(c.attributes, c.count) {
		text += fmt.Sprintf(" attribute %d: %v", a.id, a.value)
	}
	return strings.ReplaceAll(text, ";,", "; ")
}

func (f *fake) streams() {
	d := f.driver
	d.cuLaunchKernelEx = func(config *launchConfig, function handle, params *unsafe.Pointer, extra uintptr) result {
		k := f.functions[function]
		f.calls = append(f.calls, k.name+launchText(config))
		if code := f.called("cuLaunchKernelEx"); code != 0 {
			return code
		}
		if f.captures && config.stream == 0 || extra != 0 || config.sharedBytes > k.limit {
			return 1
		}
		if f.captures {
			f.capture = append(f.capture, k.node(params))
		} else {
			f.now += f.overhead
			f.launch(k, params)
		}
		return 0
	}
	d.cuStreamCreate = func(stream *handle, flags uint32) result {
		*stream = handle(f.next())
		return f.called("cuStreamCreate")
	}
	d.cuStreamBeginCapture_v2 = func(handle, int32) result {
		code := f.called("cuStreamBeginCapture_v2")
		f.captures, f.capture = code == 0, nil
		return code
	}
	d.cuStreamEndCapture = func(_ handle, graph *handle) result {
		f.captures = false
		if code := f.called("cuStreamEndCapture"); code != 0 {
			return code
		}
		*graph = handle(f.next())
		f.graphs[*graph] = f.capture
		return 0
	}
	d.cuGraphInstantiateWithFlags = func(exec *handle, graph handle, _ uint64) result {
		if code := f.called("cuGraphInstantiateWithFlags"); code != 0 {
			return code
		}
		*exec = handle(f.next())
		f.graphs[*exec] = f.graphs[graph]
		return 0
	}
	d.cuGraphLaunch = func(exec, _ handle) result {
		for _, n := range f.graphs[exec] {
			f.launch(n.fakeFunction, unsafe.SliceData(n.args))
		}
		f.calls = append(f.calls, describe(f.graphs[exec]))
		return f.called("cuGraphLaunch")
	}
	d.cuGraphExecDestroy = func(exec handle) result { delete(f.graphs, exec); return f.called("cuGraphExecDestroy") }
	d.cuGraphDestroy = func(graph handle) result { delete(f.graphs, graph); return f.called("cuGraphDestroy") }
	d.cuEventCreate = func(event *handle, _ uint32) result { *event = handle(f.next()); return f.called("cuEventCreate") }
	d.cuEventRecord = func(event, _ handle) result { f.events[event] = f.now; return f.called("cuEventRecord") }
	d.cuEventSynchronize = func(handle) result { return f.called("cuEventSynchronize") }
	d.cuEventElapsedTime = func(milliseconds *float32, start, end handle) result {
		*milliseconds = float32(f.events[end] - f.events[start])
		return f.called("cuEventElapsedTime")
	}
}
