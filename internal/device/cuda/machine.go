package cuda

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"attune/internal/device"
	"attune/internal/tensormap"
)

// Machine is one GPU, with its primary context.
type Machine struct {
	driver *driver
	facts  device.Facts
	work   chan func()
	loaded map[string]function // by image and entry

	// Made by the first timing.
	clock    *clock
	monitor  *monitor
	loadNVML func() (*nvml, error)
}

// Open makes the GPU with the given index ready. No driver and no such GPU are device.ErrNoDevice.
func Open(index int) (*Machine, error) {
	d, err := loadDriver()
	if err != nil {
		return nil, err
	}
	return openWith(d, index)
}

func openWith(d *driver, index int) (*Machine, error) {
	m := &Machine{driver: d, work: make(chan func()), loaded: map[string]function{}, loadNVML: loadNVML}
	go m.own()
	if err := m.do(func() error { return m.open(index) }); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// own runs closures on the one thread that holds the context.
func (m *Machine) own() {
	runtime.LockOSThread()
	for f := range m.work {
		f()
	}
}

// do has f run by the owner.
func (m *Machine) do(f func() error) error {
	done := make(chan error, 1)
	m.work <- func() { done <- f() }
	return <-done
}

func (m *Machine) open(index int) error {
	d := m.driver
	if err := d.failure(d.cuInit(0), "start the driver"); err != nil {
		return fmt.Errorf("%w: %w", device.ErrNoDevice, err)
	}
	var count int32
	if err := d.failure(d.cuDeviceGetCount(&count), "count the GPUs"); err != nil {
		return fmt.Errorf("%w: %w", device.ErrNoDevice, err)
	}
	if index < 0 || index >= int(count) {
		return fmt.Errorf("%w: cuda:%d was asked for, and the driver shows %d, counted from cuda:0", device.ErrNoDevice, index, count)
	}
	var gpu ordinal
	if err := d.failure(d.cuDeviceGet(&gpu, int32(index)), "find the GPU"); err != nil {
		return err
	}
	if err := m.readFacts(gpu); err != nil {
		return err
	}
	var context handle
	if err := d.failure(d.cuDevicePrimaryCtxRetain(&context, gpu), "make a context"); err != nil {
		return err
	}
	return d.failure(d.cuCtxSetCurrent(context), "make the context current")
}

func (m *Machine) readFacts(gpu ordinal) error {
	d := m.driver
	var name [256]byte
	var uuid [16]byte
	var memory uint64
	var version, major, minor, sms, clock, memoryClock, l2, shared int32
	steps := []result{
		d.cuDeviceGetName(&name[0], int32(len(name)), gpu),
		d.cuDeviceGetUuid_v2(&uuid, gpu),
		d.cuDeviceTotalMem_v2(&memory, gpu),
		d.cuDriverGetVersion(&version),
		d.cuDeviceGetAttribute(&major, deviceMajor, gpu),
		d.cuDeviceGetAttribute(&minor, deviceMinor, gpu),
		d.cuDeviceGetAttribute(&sms, deviceMultiprocessors, gpu),
		d.cuDeviceGetAttribute(&clock, deviceClockKHz, gpu),
		d.cuDeviceGetAttribute(&memoryClock, deviceMemoryClockKHz, gpu),
		d.cuDeviceGetAttribute(&l2, deviceL2Bytes, gpu),
		d.cuDeviceGetAttribute(&shared, deviceSharedOptIn, gpu),
	}
	for _, code := range steps {
		if err := d.failure(code, "ask the GPU for its facts"); err != nil {
			return err
		}
	}
	module, _ := os.ReadFile("/proc/driver/nvidia/version") // some containers do not show it
	m.facts = device.Facts{
		Kind:             "cuda",
		Name:             goString(&name[0]),
		UUID:             fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:]),
		Arch:             fmt.Sprintf("sm_%d%d", major, minor),
		Multiprocessors:  int(sms),
		MemoryBytes:      int64(memory),
		L2Bytes:          int64(l2),
		SharedBlockLimit: int(shared),
		ClockKHz:         int(clock),
		MemoryClockKHz:   int(memoryClock),
		Driver:           driverRelease(module, version),
	}
	return nil
}

// Facts describes the GPU.
func (m *Machine) Facts() device.Facts { return m.facts }

// Close ends the owner. The context ends with the process.
func (m *Machine) Close() error {
	close(m.work)
	return nil
}

// function is a loaded entry function.
type function struct {
	machine *Machine
	handle  handle
}

// Load loads an image once; PTX is compiled by the driver.
func (m *Machine) Load(image []byte, entry string) (device.Function, error) {
	key := entry + "\x00" + string(image)
	if f, ok := m.loaded[key]; ok {
		return f, nil
	}
	f := function{machine: m}
	err := m.do(func() error {
		module, err := m.loadModule(image)
		if err != nil {
			return err
		}
		return m.driver.fault(m.driver.cuModuleGetFunction(&f.handle, module, entry), "find the function "+entry+" in the image")
	})
	if err != nil {
		return nil, err
	}
	m.loaded[key] = f
	return f, nil
}

// loadModule loads machine code or PTX, with what the driver's compiler says to PTX that it refuses.
func (m *Machine) loadModule(image []byte) (handle, error) {
	terminated := append(bytes.Clone(image), 0) // PTX is a C string
	log := make([]byte, 16<<10)
	options := []int32{loadErrorLog, loadErrorLogBytes}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&terminated[0])
	pin.Pin(&log[0])
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log) - 1)} // the last byte stays 0
	var module handle
	code := m.driver.cuModuleLoadDataEx(&module, unsafe.Pointer(&terminated[0]), uint32(len(options)), &options[0], &values[0])
	said := ""
	if text := strings.TrimSpace(goString(&log[0])); text != "" {
		said = "; the driver says: " + text
	}
	switch code {
	case 0:
		return module, nil
	case unsupportedPTXVersion:
		return 0, fmt.Errorf("%w%s; its PTX is of a newer CUDA than the driver offers: %s",
			m.driver.failure(code, loading), said, m.facts.Driver)
	case outOfMemory, noBinaryForGPU, noCompiler:
		return 0, fmt.Errorf("%w%s", m.driver.failure(code, loading), said)
	}
	fault := m.driver.fault(code, loading).(*device.Fault)
	fault.Text += said
	return 0, fault
}

const loading = "load the image"

// Attributes is what the driver says of the function.
func (f function) Attributes() (device.Attributes, error) {
	var a device.Attributes
	d := f.machine.driver
	err := f.machine.do(func() error {
		for _, q := range []struct {
			attribute int32
			into      *int
		}{
			{functionRegisters, &a.Registers},
			{functionStaticShared, &a.StaticSharedBytes},
			{functionLocalBytes, &a.LocalBytes},
			{functionMaxThreads, &a.MaxThreads},
		} {
			var value int32
			if err := d.failure(d.cuFuncGetAttribute(&value, q.attribute, f.handle), "ask for a function's attributes"); err != nil {
				return err
			}
			*q.into = int(value)
		}
		return nil
	})
	return a, err
}

// Alloc takes memory of the GPU.
func (m *Machine) Alloc(size int) (device.Address, error) {
	var address uint64
	err := m.do(func() error {
		return m.driver.failure(m.driver.cuMemAlloc_v2(&address, uint64(size)), fmt.Sprintf("take %d bytes of GPU memory", size))
	})
	return device.Address(address), err
}

// Free gives memory back.
func (m *Machine) Free(address device.Address) error {
	return m.do(func() error { return m.driver.failure(m.driver.cuMemFree_v2(uint64(address)), "give GPU memory back") })
}

// Write copies to the GPU.
func (m *Machine) Write(to device.Address, data []byte) error {
	return m.do(func() error {
		code := m.driver.cuMemcpyHtoD_v2(uint64(to), unsafe.Pointer(unsafe.SliceData(data)), uint64(len(data)))
		return m.driver.failure(code, "copy to the GPU")
	})
}

// Read copies from the GPU.
func (m *Machine) Read(data []byte, from device.Address) error {
	return m.do(func() error {
		code := m.driver.cuMemcpyDtoH_v2(unsafe.Pointer(unsafe.SliceData(data)), uint64(from), uint64(len(data)))
		return m.driver.failure(code, "copy from the GPU")
	})
}

// Launch launches and waits.
func (m *Machine) Launch(f device.Function, job *device.Job, args [][]byte) error {
	return m.do(func() error {
		if err := m.allow(f.(function), job); err != nil {
			return err
		}
		if err := m.launch(f.(function), 0, job, args); err != nil {
			return err
		}
		return m.driver.fault(m.driver.cuCtxSynchronize(), "run the kernel")
	})
}

// portableCluster is how many blocks a cluster may have everywhere; more a function must be allowed.
const portableCluster = 8

// allow raises the limits of a function that asks for more shared memory than the 48 KB everybody gets, or for larger clusters.
func (m *Machine) allow(f function, job *device.Job) error {
	if bytes := job.DynamicSharedBytes; bytes > 0 {
		code := m.driver.cuFuncSetAttribute(f.handle, functionDynamicShared, int32(bytes))
		if err := m.driver.fault(code, fmt.Sprintf("allow the kernel %d bytes of dynamic shared memory", bytes)); err != nil {
			return err
		}
	}
	if blocks := job.Cluster[0] * job.Cluster[1] * job.Cluster[2]; blocks > portableCluster {
		code := m.driver.cuFuncSetAttribute(f.handle, functionLargeClusters, 1)
		return m.driver.fault(code, fmt.Sprintf("allow the kernel clusters of %d blocks", blocks))
	}
	return nil
}

// launch starts a kernel on a stream; the driver copies the arguments before it returns. A launch in clusters that is being captured takes them
// along into the graph.
func (m *Machine) launch(f function, stream handle, job *device.Job, args [][]byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	params := make([]unsafe.Pointer, len(args)+1) // one more, so that there is a first even with no arguments
	for i, arg := range args {
		pin.Pin(&arg[0])
		params[i] = unsafe.Pointer(&arg[0])
	}
	config := launchConfig{grid: extents(job.Grid), block: extents(job.Block), sharedBytes: uint32(job.DynamicSharedBytes), stream: stream}
	if job.Cluster != [3]int{} {
		attribute := &launchAttribute{id: launchClusterDimension, cluster: extents(job.Cluster)}
		pin.Pin(attribute)
		config.attributes, config.count = attribute, 1
	}
	return m.driver.fault(m.driver.cuLaunchKernelEx(&config, f.handle, &params[0], 0), "launch the kernel")
}

func extents(e [3]int) [3]uint32 { return [3]uint32{uint32(e[0]), uint32(e[1]), uint32(e[2])} }

// EncodeTensorMap has the driver encode a map.
func (m *Machine) EncodeTensorMap(t *tensormap.Map, buffer device.Address) ([]byte, error) {
	rank := len(t.Dims)
	var dims, strides [5]uint64
	var box, elementStrides [5]uint32
	for i := range rank {
		dims[i], box[i], elementStrides[i] = uint64(t.Dims[i]), uint32(t.Box[i]), 1
		if len(t.ElementStrides) > 0 {
			elementStrides[i] = uint32(t.ElementStrides[i])
		}
		if i > 0 {
			strides[i-1] = uint64(t.Strides[i-1])
		}
	}
	value := aligned(tensormap.Bytes)
	err := m.do(func() error {
		code := m.driver.cuTensorMapEncodeTiled(unsafe.Pointer(&value[0]), int32(tensormap.Number(t.Type, tensormap.Types)), uint32(rank), uint64(buffer),
			&dims, &strides, &box, &elementStrides, int32(tensormap.Number(t.Interleave, tensormap.Interleaves)),
			int32(tensormap.Number(t.Swizzle, tensormap.Swizzles)), int32(tensormap.Number(t.L2Promotion, tensormap.Promotions)),
			int32(tensormap.Number(t.OOB, tensormap.OOBs)))
		return m.driver.failure(code, fmt.Sprintf("encode a tensor map of %v, in boxes of %v", t.Dims, t.Box))
	})
	return value, err
}

// aligned is memory at a multiple of 128, as CUtensorMap asks for.
func aligned(size int) []byte {
	const alignment = 128
	room := make([]byte, size+alignment-1)
	skip := -uintptr(unsafe.Pointer(&room[0])) % alignment
	return room[skip:][:size:size]
}
