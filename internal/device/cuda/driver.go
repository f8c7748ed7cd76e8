package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"attune/internal/device"
)

// result is CUresult; 0 is success.
type result int32

// Handles of the driver are pointers or integers. This package never dereferences them.
type (
	handle  uintptr // CUcontext, CUmodule, CUfunction, CUstream, CUevent, CUgraph, CUgraphExec
	ordinal int32   // CUdevice
)

// driver is the part of the driver API that attune uses. Each field has the name and the arguments
// of its C function.
type driver struct {
	cuInit                      func(flags uint32) result
	cuDriverGetVersion          func(version *int32) result
	cuGetErrorName              func(code result, name **byte) result
	cuGetErrorString            func(code result, text **byte) result
	cuDeviceGetCount            func(count *int32) result
	cuDeviceGet                 func(device *ordinal, index int32) result
	cuDeviceGetName             func(name *byte, length int32, device ordinal) result
	cuDeviceGetUuid_v2          func(uuid *[16]byte, device ordinal) result
	cuDeviceGetAttribute        func(value *int32, attribute int32, device ordinal) result
	cuDeviceTotalMem_v2         func(bytes *uint64, device ordinal) result
	cuDevicePrimaryCtxRetain    func(context *handle, device ordinal) result
	cuCtxSetCurrent             func(context handle) result
	cuCtxSynchronize            func() result
	cuModuleLoadDataEx          func(module *handle, image unsafe.Pointer, count uint32, options *int32, values *uintptr) result
	cuModuleUnload              func(module handle) result
	cuModuleGetFunction         func(function *handle, module handle, name string) result
	cuFuncGetAttribute          func(value *int32, attribute int32, function handle) result
	cuFuncSetAttribute          func(function handle, attribute, value int32) result
	cuMemAlloc_v2               func(address *uint64, bytes uint64) result
	cuMemFree_v2                func(address uint64) result
	cuMemcpyHtoD_v2             func(to uint64, from unsafe.Pointer, bytes uint64) result
	cuMemcpyDtoH_v2             func(to unsafe.Pointer, from uint64, bytes uint64) result
	cuMemsetD8Async             func(to uint64, value uint32, bytes uint64, stream handle) result
	cuMemsetD32Async            func(to uint64, value uint32, words uint64, stream handle) result
	cuLaunchKernelEx            func(config *launchConfig, f handle, params *unsafe.Pointer, extra uintptr) result
	cuStreamCreate              func(stream *handle, flags uint32) result
	cuStreamBeginCapture_v2     func(stream handle, mode int32) result
	cuStreamEndCapture          func(stream handle, graph *handle) result
	cuGraphInstantiateWithFlags func(exec *handle, graph handle, flags uint64) result
	cuGraphLaunch               func(exec, stream handle) result
	cuGraphExecDestroy          func(exec handle) result
	cuGraphDestroy              func(graph handle) result
	cuEventCreate               func(event *handle, flags uint32) result
	cuEventRecord               func(event, stream handle) result
	cuEventSynchronize          func(event handle) result
	cuEventElapsedTime          func(milliseconds *float32, start, end handle) result
	cuTensorMapEncodeTiled      func(into unsafe.Pointer, dtype int32, rank uint32, address uint64, dims, strides *[5]uint64,
		box, elementStrides *[5]uint32, interleave, swizzle, l2Promotion, oobFill int32) result
}

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	sharedBytes uint32
	_           uint32
	stream      handle
	attributes  *launchAttribute
	count       uint32 // number of attributes
	_           uint32
}

// launchAttribute is a CUlaunchAttribute: an ID, padding to 8 bytes, and a union of 64 bytes. The
// union has the cluster size, or a 1 in its first word for a cooperative launch.
type launchAttribute struct {
	id    int32
	_     int32
	value [3]uint32
	_     [52]byte
}

// Attributes of devices and functions, and options of the loader. The values are those of cuda.h.
const (
	deviceClockKHz        = 13
	deviceMultiprocessors = 16
	deviceMemoryClockKHz  = 36
	deviceL2Bytes         = 38
	deviceMajor           = 75
	deviceMinor           = 76
	deviceSharedOptIn     = 97

	functionMaxThreads         = 0
	functionStaticShared       = 1
	functionLocalBytes         = 3
	functionRegisters          = 4
	functionDynamicShared      = 8
	functionNonPortableCluster = 14

	launchCooperative      = 2
	launchClusterDimension = 4

	loadErrorLog      = 5
	loadErrorLogBytes = 6

	streamNonBlocking  = 1
	captureThreadLocal = 1
)

// Results of the loader that are not the kernel's fault: this machine cannot load the image.
const (
	outOfMemory           = 2
	noBinaryForGPU        = 209
	noCompiler            = 221
	unsupportedPTXVersion = 222
)

const library = "libcuda.so.1"

// entry is a function of a shared library and the field that it is bound to.
type entry struct {
	name string
	into any
}

func (d *driver) entries() []entry {
	return []entry{
		{"cuInit", &d.cuInit},
		{"cuDriverGetVersion", &d.cuDriverGetVersion},
		{"cuGetErrorName", &d.cuGetErrorName},
		{"cuGetErrorString", &d.cuGetErrorString},
		{"cuDeviceGetCount", &d.cuDeviceGetCount},
		{"cuDeviceGet", &d.cuDeviceGet},
		{"cuDeviceGetName", &d.cuDeviceGetName},
		{"cuDeviceGetUuid_v2", &d.cuDeviceGetUuid_v2},
		{"cuDeviceGetAttribute", &d.cuDeviceGetAttribute},
		{"cuDeviceTotalMem_v2", &d.cuDeviceTotalMem_v2},
		{"cuDevicePrimaryCtxRetain", &d.cuDevicePrimaryCtxRetain},
		{"cuCtxSetCurrent", &d.cuCtxSetCurrent},
		{"cuCtxSynchronize", &d.cuCtxSynchronize},
		{"cuModuleLoadDataEx", &d.cuModuleLoadDataEx},
		{"cuModuleUnload", &d.cuModuleUnload},
		{"cuModuleGetFunction", &d.cuModuleGetFunction},
		{"cuFuncGetAttribute", &d.cuFuncGetAttribute},
		{"cuFuncSetAttribute", &d.cuFuncSetAttribute},
		{"cuMemAlloc_v2", &d.cuMemAlloc_v2},
		{"cuMemFree_v2", &d.cuMemFree_v2},
		{"cuMemcpyHtoD_v2", &d.cuMemcpyHtoD_v2},
		{"cuMemcpyDtoH_v2", &d.cuMemcpyDtoH_v2},
		{"cuMemsetD8Async", &d.cuMemsetD8Async},
		{"cuMemsetD32Async", &d.cuMemsetD32Async},
		{"cuLaunchKernelEx", &d.cuLaunchKernelEx},
		{"cuStreamCreate", &d.cuStreamCreate},
		{"cuStreamBeginCapture_v2", &d.cuStreamBeginCapture_v2},
		{"cuStreamEndCapture", &d.cuStreamEndCapture},
		{"cuGraphInstantiateWithFlags", &d.cuGraphInstantiateWithFlags},
		{"cuGraphLaunch", &d.cuGraphLaunch},
		{"cuGraphExecDestroy", &d.cuGraphExecDestroy},
		{"cuGraphDestroy", &d.cuGraphDestroy},
		{"cuEventCreate", &d.cuEventCreate},
		{"cuEventRecord", &d.cuEventRecord},
		{"cuEventSynchronize", &d.cuEventSynchronize},
		{"cuEventElapsedTime", &d.cuEventElapsedTime},
		{"cuTensorMapEncodeTiled", &d.cuTensorMapEncodeTiled},
	}
}

// loadDriver opens the driver's library and binds its functions.
func loadDriver() (*driver, error) {
	// purego reads the error of dlopen with a second call, dlerror, and dlerror is per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("%w: NVIDIA's driver is not installed (%w)", device.ErrNoDevice, err)
	}
	d := &driver{}
	for _, f := range d.entries() {
		symbol, err := purego.Dlsym(lib, f.name)
		if err != nil {
			return nil, fmt.Errorf("%w: %s has no function %s; the driver is too old for CUDA 12", device.ErrNoDevice, library, f.name)
		}
		purego.RegisterFunc(f.into, symbol)
	}
	return d, nil
}

// fault turns the result of loading or running a kernel into a device.Fault.
func (d *driver) fault(code result, operation string) error {
	if code == 0 {
		return nil
	}
	var name, text *byte
	f := &device.Fault{Code: fmt.Sprintf("CUDA error %d", code), Operation: operation}
	if d.cuGetErrorName(code, &name) == 0 {
		f.Code = goString(name)
	}
	if d.cuGetErrorString(code, &text) == 0 {
		f.Text = goString(text)
	}
	return f
}

// failure turns any other result into an error. Its text is that of a fault, but it is not a
// device.Fault, because the kernel did not cause it.
func (d *driver) failure(code result, operation string) error {
	if err := d.fault(code, operation); err != nil {
		return errors.New(err.Error())
	}
	return nil
}

// goString copies a C string.
func goString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

var kernelModule = regexp.MustCompile(`Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)`)

// driverRelease is the driver's release and the CUDA version it supports, such as "580.159.04, CUDA
// 13.0". module is the contents of /proc/driver/nvidia/version.
func driverRelease(module []byte, cudaVersion int32) string {
	cuda := fmt.Sprintf("CUDA %d.%d", cudaVersion/1000, cudaVersion%1000/10)
	if m := kernelModule.FindSubmatch(module); m != nil {
		return string(m[1]) + ", " + cuda
	}
	return cuda
}
