package sdpa

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"attune/internal/device"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrUnsupported is the error of a valid problem that a GPU has no kernel for.
	ErrUnsupported = errors.New("not supported on this GPU")
	// ErrNoGPU is the error of GPU without a driver, or without such a GPU.
	ErrNoGPU = errors.New("no GPU")
	// ErrClosed is the error of a closed device and of a freed tensor.
	ErrClosed = errors.New("closed")
)

// Device computes attention. All methods may be called from several goroutines at the same time.
type Device struct {
	name string
	gpu  accelerator // nil for the CPU

	fallback bool // for every problem
	mu       sync.RWMutex
	closed   bool
}

// CPU returns the CPU as a device. It computes on all cores, or on as many as GOMAXPROCS says.
func CPU() *Device { return &Device{name: "CPU, " + vectors.name} }

// Auto opens the first GPU that the kernels are for, and the CPU if there is none. What that GPU
// does not support, the CPU computes, as with Problem.Fallback.
func Auto() (*Device, error) { return auto(GPU) }

func auto(open func(index int) (*Device, error)) (*Device, error) {
	for index := 0; ; index++ {
		d, err := open(index)
		switch {
		case err == nil:
			d.fallback = true
			return d, nil
		case errors.Is(err, ErrNoGPU):
			return CPU(), nil
		case !errors.Is(err, ErrUnsupported):
			return nil, err
		}
	}
}

// accelerator is a GPU. Its methods are called one at a time.
type accelerator interface {
	// supports reports why there is no kernel for a call.
	supports(c *call, all [4]*operand) error
	// attend computes a call that is supported, and waits for the result.
	attend(ctx context.Context, c *call, all [4]*operand) error
	upload(x *Tensor) (gpuTensor, error)
	zeros(bytes, heads int) (gpuTensor, error)
	download(from gpuTensor, t DType, shape [4]int) (*Tensor, error)
	write(to gpuTensor, data []byte) error
	free(t gpuTensor) error
	// failure is the error that has made the GPU unusable, nil if it is usable.
	failure() error
	close() error
}

// gpuTensor is memory of a GPU, with the factors of an E4M3 tensor.
type gpuTensor struct {
	data, descale device.Address
	bytes, heads  int // allocated
	factors       []float32
}

// Name describes the device, such as "NVIDIA H200" or "CPU, AVX2".
func (d *Device) Name() string {
	if d == nil {
		return ""
	}
	return d.name
}

// Close waits for running calls and frees all memory of the device. Later calls return ErrClosed. A
// second Close does nothing, nor does that of a nil device.
func (d *Device) Close() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if d.gpu == nil {
		return nil
	}
	return d.gpu.close()
}

// lock reserves the device for a call: one at a time on a GPU, several on the CPU.
func (d *Device) lock() (unlock func(), err error) {
	if d == nil {
		return nil, errors.New("sdpa: dev is nil; open one with CPU, GPU or Auto")
	}
	reserve, unlock := d.mu.RLock, d.mu.RUnlock
	if d.gpu != nil {
		reserve, unlock = d.mu.Lock, d.mu.Unlock
	}
	reserve()
	if d.closed {
		unlock()
		return nil, fmt.Errorf("sdpa: the device %s is %w", d.name, ErrClosed)
	}
	if d.gpu != nil && d.gpu.failure() != nil {
		unlock()
		return nil, fmt.Errorf("sdpa: a kernel has failed on %s before, and the context is lost; start the program again: %w",
			d.name, d.gpu.failure())
	}
	return unlock, nil
}

// Operand is a tensor of Forward: a *Tensor in host memory, or a *DeviceTensor.
type Operand interface {
	// resolve checks the operand of a name for a call on a device.
	resolve(name string, d *Device) (*operand, error)
}

// operand is a checked tensor of a call. Exactly one of its tensors is set.
type operand struct {
	tensorForm
	host   *Tensor
	remote *DeviceTensor // on a GPU
}

// factors are the descale factors of the operand, nil for none.
func (o *operand) factors() []float32 {
	if o.host != nil {
		return o.host.Descale
	}
	return o.remote.remote.factors
}

// shares reports whether two operands have memory in common.
func (o *operand) shares(other *operand) bool {
	if o.host == nil || other.host == nil {
		return o.remote != nil && o.remote == other.remote
	}
	a, b := o.host.Data, other.host.Data
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	from, of := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return from < of+uintptr(len(b)) && of < from+uintptr(len(a))
}

func (x *Tensor) resolve(name string, _ *Device) (*operand, error) {
	if err := x.check(name); err != nil {
		return nil, err
	}
	return &operand{tensorForm: tensorForm{name, x.DType, x.Shape}, host: x}, nil
}

// onHost returns the tensor in host memory, a copy of one on a GPU.
func (o *operand) onHost() (*Tensor, error) {
	if o.host != nil {
		return o.host, nil
	}
	return o.remote.read()
}

// DeviceTensor is a tensor in the memory of a device, so that repeated calls do not copy it.
type DeviceTensor struct {
	device *Device
	dtype  DType
	shape  [4]int
	freed  bool

	host   *Tensor   // on the CPU
	remote gpuTensor // on a GPU
}

// DType is the number format of the elements.
func (t *DeviceTensor) DType() DType { return t.dtype }

// Shape is [batch, heads, rows, head dim].
func (t *DeviceTensor) Shape() [4]int { return t.shape }

// Upload copies a tensor, with its descale factors, to the memory of the device.
func (d *Device) Upload(x *Tensor) (*DeviceTensor, error) {
	if err := x.check("tensor"); err != nil {
		return nil, err
	}
	return d.newTensor(x.DType, x.Shape, x.clone, func(g accelerator) (gpuTensor, error) { return g.upload(x) })
}

// Alloc allocates a tensor of zeros in the memory of the device, for an output.
func (d *Device) Alloc(t DType, shape [4]int) (*DeviceTensor, error) {
	elements, err := checkShape(t, shape)
	if err != nil {
		return nil, fmt.Errorf("sdpa: alloc: %w", err)
	}
	bytes := elements * t.Bytes()
	return d.newTensor(t, shape,
		func() *Tensor { return &Tensor{DType: t, Shape: shape, Data: make([]byte, bytes)} },
		func(g accelerator) (gpuTensor, error) { return g.zeros(bytes, shape[0]*shape[1]) })
}

// newTensor makes a tensor with the memory that one of two functions returns.
func (d *Device) newTensor(dtype DType, shape [4]int, onCPU func() *Tensor, onGPU func(accelerator) (gpuTensor, error)) (*DeviceTensor, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := &DeviceTensor{device: d, dtype: dtype, shape: shape}
	if d.gpu == nil {
		t.host = onCPU()
		return t, nil
	}
	if t.remote, err = onGPU(d.gpu); err != nil {
		return nil, err
	}
	return t, nil
}

// Download copies the tensor to host memory.
func (t *DeviceTensor) Download() (*Tensor, error) {
	if t == nil {
		return nil, errors.New("sdpa: the device tensor is nil")
	}
	unlock, err := t.device.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := t.check("the device tensor", t.device); err != nil {
		return nil, err
	}
	return t.read()
}

// Free releases the memory. A second Free does nothing; neither does one after Close.
func (t *DeviceTensor) Free() error {
	if t == nil {
		return nil
	}
	t.device.mu.Lock()
	defer t.device.mu.Unlock()
	if t.freed || t.device.closed {
		return nil
	}
	t.freed = true
	t.host = nil
	if t.device.gpu == nil {
		return nil
	}
	return t.device.gpu.free(t.remote)
}

// read copies the tensor to host memory. The caller holds the lock of the device.
func (t *DeviceTensor) read() (*Tensor, error) {
	if t.host != nil {
		return t.host.clone(), nil
	}
	return t.device.gpu.download(t.remote, t.dtype, t.shape)
}

// check refuses a tensor that a call on a device cannot use.
func (t *DeviceTensor) check(name string, d *Device) error {
	switch {
	case t.device != d:
		return fmt.Errorf("sdpa: %s is on another device, %s; upload it to %s", name, t.device.name, d.name)
	case t.freed:
		return fmt.Errorf("sdpa: %s was freed: it is %w", name, ErrClosed)
	}
	return nil
}

func (t *DeviceTensor) resolve(name string, d *Device) (*operand, error) {
	if t == nil {
		return nil, fmt.Errorf("sdpa: %s is nil", name)
	}
	if err := t.check(name, d); err != nil {
		return nil, err
	}
	o := &operand{tensorForm: tensorForm{name, t.dtype, t.shape}, host: t.host}
	if t.host == nil {
		o.remote = t
	}
	return o, nil
}

func (x *Tensor) clone() *Tensor {
	y := *x
	y.Data = append([]byte(nil), x.Data...)
	y.Descale = append([]float32(nil), x.Descale...)
	return &y
}

// Forward computes o = softmax(scale · q·kᵀ)·v for each head, with the mask and sinks of the problem.
// q and o are [batch, heads, queries, head dim]. k and v are [batch, kv heads, keys, head dim]; kv
// heads divide heads, and neighbouring heads share one. v and o may have another head dim. o is overwritten and must not overlap with
// the inputs. A row that sees no key is zero.
//
// Forward returns when o is complete. If ctx is done before that, it returns the context's error,
// and o is undefined. A kernel that runs on a GPU is not interrupted.
func Forward(ctx context.Context, dev *Device, p Problem, q, k, v, o Operand) error {
	if ctx == nil {
		return errors.New("sdpa: ctx is nil; pass context.Background()")
	}
	unlock, err := dev.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("sdpa: %w", err)
	}
	c, all, err := dev.check(p, q, k, v, o)
	if err != nil {
		return err
	}
	if dev.gpu != nil {
		err := dev.gpu.supports(c, all)
		if err == nil {
			return dev.gpu.attend(ctx, c, all)
		}
		if !dev.fallback && !p.Fallback {
			return err
		}
	}
	return attendOnHost(ctx, c, all)
}

// Supports returns nil if the device computes the problem itself, and an ErrUnsupported with the
// reason if only the CPU can. Any other error is what Forward would return.
func (d *Device) Supports(p Problem, q, k, v, o Operand) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	c, all, err := d.check(p, q, k, v, o)
	if err != nil || d.gpu == nil {
		return err
	}
	return d.gpu.supports(c, all)
}

// check checks the arguments of Forward.
func (d *Device) check(p Problem, q, k, v, o Operand) (*call, [4]*operand, error) {
	var all [4]*operand
	for i, x := range []Operand{q, k, v, o} {
		name := [4]string{"q", "k", "v", "o"}[i]
		if x == nil {
			return nil, all, fmt.Errorf("sdpa: %s is nil", name)
		}
		var err error
		if all[i], err = x.resolve(name, d); err != nil {
			return nil, all, err
		}
	}
	for i, name := range []string{"q", "k", "v"} {
		if all[3].shares(all[i]) {
			return nil, all, fmt.Errorf("sdpa: o shares memory with %s; it is written while %s is read", name, name)
		}
	}
	if p.PageTable != nil {
		for _, x := range all[1:3] {
			if _, err := pageFactors(x.name, x.factors(), x.shape[1]); err != nil {
				return nil, all, err
			}
		}
	}
	c, err := newCall(p, all[0].tensorForm, all[1].tensorForm, all[2].tensorForm, all[3].tensorForm)
	return c, all, err
}

// attendOnHost computes on the CPU. Tensors on a GPU are copied to host memory and back.
func attendOnHost(ctx context.Context, c *call, all [4]*operand) error {
	var host [4]*Tensor
	for i, x := range all {
		var err error
		if host[i], err = x.onHost(); err != nil {
			return err
		}
	}
	attend := attendCPU
	if c.hasSequences() {
		attend = attendSequences
	}
	if err := attend(ctx, c, host[0], host[1], host[2], host[3]); err != nil {
		return fmt.Errorf("sdpa: %w", err)
	}
	if o := all[3].remote; o != nil {
		return o.device.gpu.write(o.remote, host[3].Data)
	}
	return nil
}
