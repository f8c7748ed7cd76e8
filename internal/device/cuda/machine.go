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

// Machine is one GPU with its primary context.
type Machine struct {
	driver *driver
	facts  device.Facts
	work   chan func()
	loaded map[string]function // by image and entry

	// Created by the first call of Time.
	clock       *clock // of graph replays
	directClock *clock // of launches outside graphs
	monitor     *monitor
	loadNVML    func() (*nvml, error)
}

// Open opens the GPU with the given index. Without a driver or such a GPU it returns
// device.ErrNoDevice.
func Open(index int) (*Machine, error) {
	d, err := loadDriver()
	if err != nil {
		return nil, err
	}
	return openWith(d, index)
}

func openWith(d *driver, index int) (*Machine, error) {
	m := &Machine{driver: d, work: make(chan func()), loaded: map[string]function{}, loadNVML: loadNVML}
	go m.owner()
	if err := m.do(func() error { return m.open(index) }); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// owner runs closures on the one thread that holds the context.
func (m *Machine) owner() {
	runtime.LockOSThread()
	for f := range m.work {
		f()
	}
}

// do runs f on the owner goroutine and waits for it.
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
		return fmt.Errorf("%w: cuda:%d requested; the driver shows %d, numbered from cuda:0", device.ErrNoDevice, index, count)
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
		if err := d.failure(code, "query the GPU"); err != nil {
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

// Close ends the owner goroutine. The context lives until the process ends.
func (m *Machine) Close() error {
	close(m.work)
	return nil
}

// function is a loaded entry function.
type function struct {
	machine *Machine
	handle  handle
}

// Load loads an image once. The driver compiles PTX.
func (m *Machine) Load(image []byte, entry string) (device.Function, error) {
	key := entry + "\x00" + string(image)
	if f, ok := m.loaded[key]; ok {
		return f, nil
	}
	f, _, err := m.load(image, entry)
	if err != nil {
		return nil, err
	}
	m.loaded[key] = f
	return f, nil
}

// loadFresh loads a job's image as a module of its own, with memory that no launch has written.
func (m *Machine) loadFresh(job device.Job) (f function, unload func(), err error) {
	f, module, err := m.load(job.Image, job.Entry)
	if err != nil {
		return f, nil, err
	}
	unload = func() { _ = m.do(func() error { m.driver.cuModuleUnload(module); return nil }) }
	if err := m.do(func() error { return m.raiseLimits(f, &job) }); err != nil {
		unload()
		return f, nil, err
	}
	return f, unload, nil
}

func (m *Machine) load(image []byte, entry string) (f function, module handle, err error) {
	f.machine = m
	err = m.do(func() error {
		if module, err = m.loadModule(image); err != nil {
			return err
		}
		code := m.driver.cuModuleGetFunction(&f.handle, module, entry)
		if code != 0 {
			m.driver.cuModuleUnload(module)
		}
		return m.driver.fault(code, "find the function "+entry+" in the image")
	})
	return f, module, err
}

// loadModule loads a cubin or PTX. Its error contains the log of the driver's PTX compiler.
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
	detail := ""
	if text := strings.TrimSpace(goString(&log[0])); text != "" {
		detail = "; driver log: " + text
	}
	const operation = "load the image"
	switch code {
	case 0:
		return module, nil
	case unsupportedPTXVersion:
		return 0, fmt.Errorf("%w%s; the PTX needs a newer CUDA version than the driver supports: %s",
			m.driver.failure(code, operation), detail, m.facts.Driver)
	case outOfMemory, noBinaryForGPU, noCompiler:
		return 0, fmt.Errorf("%w%s", m.driver.failure(code, operation), detail)
	}
	fault := m.driver.fault(code, operation).(*device.Fault)
	fault.Text += detail
	return 0, fault
}

// Attributes reads the driver's figures for the function.
func (f function) Attributes() (device.Attributes, error) {
	var a device.Attributes
	d := f.machine.driver
	err := f.machine.do(func() error {
		for _, query := range []struct {
			attribute int32
			into      *int
		}{
			{functionRegisters, &a.Registers},
			{functionStaticShared, &a.StaticSharedBytes},
			{functionLocalBytes, &a.LocalBytes},
			{functionMaxThreads, &a.MaxThreads},
		} {
			var value int32
			if err := d.failure(d.cuFuncGetAttribute(&value, query.attribute, f.handle), "query a function's attributes"); err != nil {
				return err
			}
			*query.into = int(value)
		}
		return nil
	})
	return a, err
}

// Alloc allocates GPU memory.
func (m *Machine) Alloc(size int) (device.Address, error) {
	var address uint64
	err := m.do(func() error {
		return m.driver.failure(m.driver.cuMemAlloc_v2(&address, uint64(size)), fmt.Sprintf("allocate %d bytes of GPU memory", size))
	})
	return device.Address(address), err
}

// Free frees GPU memory.
func (m *Machine) Free(address device.Address) error {
	return m.do(func() error { return m.driver.failure(m.driver.cuMemFree_v2(uint64(address)), "free GPU memory") })
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

// Launch launches a kernel and waits until it has finished.
func (m *Machine) Launch(f device.Function, job *device.Job, args [][]byte) error {
	return m.do(func() error {
		if err := m.raiseLimits(f.(function), job); err != nil {
			return err
		}
		if err := m.launch(f.(function), 0, job, args); err != nil {
			return err
		}
		return m.driver.fault(m.driver.cuCtxSynchronize(), "run the kernel")
	})
}

// portableClusterBlocks is CUDA's portable cluster size limit. A function must opt in to more.
const portableClusterBlocks = 8

// raiseLimits opts a function in to the job's dynamic shared memory, which is needed above 48 KB,
// and to non-portable cluster sizes.
func (m *Machine) raiseLimits(f function, job *device.Job) error {
	if bytes := job.DynamicSharedBytes; bytes > 0 {
		code := m.driver.cuFuncSetAttribute(f.handle, functionDynamicShared, int32(bytes))
		if err := m.driver.fault(code, fmt.Sprintf("allow the kernel %d bytes of dynamic shared memory", bytes)); err != nil {
			return err
		}
	}
	if blocks := job.Cluster[0] * job.Cluster[1] * job.Cluster[2]; blocks > portableClusterBlocks {
		code := m.driver.cuFuncSetAttribute(f.handle, functionNonPortableCluster, 1)
		return m.driver.fault(code, fmt.Sprintf("allow the kernel clusters of %d blocks", blocks))
	}
	return nil
}

// launch starts a kernel on a stream. The driver copies the arguments before it returns. A captured
// launch keeps its attributes in the graph.
func (m *Machine) launch(f function, stream handle, job *device.Job, args [][]byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	params := make([]unsafe.Pointer, len(args)+1) // +1: &params[0] must exist without arguments too
	for i, arg := range args {
		pin.Pin(&arg[0])
		params[i] = unsafe.Pointer(&arg[0])
	}
	config := launchConfig{grid: extents(job.Grid), block: extents(job.Block), sharedBytes: uint32(job.DynamicSharedBytes), stream: stream}
	if attributes := launchAttributes(job); len(attributes) > 0 {
		pin.Pin(&attributes[0])
		config.attributes, config.count = &attributes[0], uint32(len(attributes))
	}
	return m.driver.fault(m.driver.cuLaunchKernelEx(&config, f.handle, &params[0], 0), "launch the kernel")
}

func launchAttributes(job *device.Job) []launchAttribute {
	var attributes []launchAttribute
	if job.Cluster != [3]int{} {
		attributes = append(attributes, launchAttribute{id: launchClusterDimension, value: extents(job.Cluster)})
	}
	if job.Cooperative {
		attributes = append(attributes, launchAttribute{id: launchCooperative, value: [3]uint32{1}})
	}
	return attributes
}

func extents(e [3]int) [3]uint32 { return [3]uint32{uint32(e[0]), uint32(e[1]), uint32(e[2])} }

// EncodeTensorMap encodes a tensor map with the driver.
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
		code := m.driver.cuTensorMapEncodeTiled(unsafe.Pointer(&value[0]), int32(tensormap.EnumValue(t.Type, tensormap.Types)), uint32(rank), uint64(buffer),
			&dims, &strides, &box, &elementStrides, int32(tensormap.EnumValue(t.Interleave, tensormap.Interleaves)),
			int32(tensormap.EnumValue(t.Swizzle, tensormap.Swizzles)), int32(tensormap.EnumValue(t.L2Promotion, tensormap.Promotions)),
			int32(tensormap.EnumValue(t.OOB, tensormap.OOBs)))
		return m.driver.failure(code, fmt.Sprintf("encode a tensor map of %v, in boxes of %v", t.Dims, t.Box))
	})
	return value, err
}

// aligned is memory at a multiple of 128 bytes, which CUtensorMap needs.
func aligned(size int) []byte {
	const alignment = 128
	memory := make([]byte, size+alignment-1)
	skip := -uintptr(unsafe.Pointer(&memory[0])) % alignment
	return memory[skip:][:size:size]
}
