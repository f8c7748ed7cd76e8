//go:build linux || darwin

package sdpa

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"attune/internal/arch"
	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/form"
	"attune/internal/spec"
	"attune/kernels"
)

// selectionName is the selection of kernel.toml whose variants a GPU runs, those with exact
// exponentials.
const selectionName = "stage7"

// loadKernel reads the embedded kernel.toml, once.
var loadKernel = sync.OnceValues(func() (*spec.Kernel, error) { return spec.Load(kernels.SDPA()) })

// GPU opens a GPU by its index among those of the driver. Without a driver or such a GPU the error
// is ErrNoGPU, and ErrUnsupported for a GPU that the kernels are not for.
func GPU(index int) (*Device, error) {
	machine, err := cuda.Open(index)
	if errors.Is(err, device.ErrNoDevice) {
		return nil, fmt.Errorf("sdpa: %w%s", ErrNoGPU, strings.TrimPrefix(err.Error(), device.ErrNoDevice.Error()))
	}
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	d, err := newGPU(machine)
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	return d, nil
}

// gpu is an accelerator behind NVIDIA's driver.
type gpu struct {
	machine   device.Machine
	table     *form.Table
	forms     map[string]*loaded // by variant
	live      map[device.Address]bool
	staging   [4]gpuTensor         // memory for q, k, v and o of calls with host tensors
	arrays    map[string]gpuTensor // memory for the options of a call, by their names
	workspace gpuTensor            // its first bytes are zero between calls
	lost      error                // after a kernel has failed
}

// loaded is a form that is ready to launch.
type loaded struct {
	*form.Form
	function device.Function
}

// newGPU returns a machine as a device.
func newGPU(machine device.Machine) (*Device, error) {
	kernel, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	facts := machine.Facts()
	if facts.Arch, err = arch.Named(facts.Arch, os.Getenv(arch.Variable)); err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	table, err := form.NewTable(kernel.Selection(selectionName), kernels.SDPA(), kernels.Forms(), kernels.Portable(), facts)
	if errors.Is(err, form.ErrUnsupported) {
		return nil, fmt.Errorf("sdpa: %s: %w; use the CPU", strings.TrimSuffix(err.Error(), ": "+form.ErrUnsupported.Error()), ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	return &Device{name: facts.Name, gpu: &gpu{
		machine: machine, table: table, forms: map[string]*loaded{}, live: map[device.Address]bool{}, arrays: map[string]gpuTensor{},
	}}, nil
}

// close frees all memory. A lost context cannot, and the end of the process does.
func (g *gpu) close() error {
	var all []error
	for address := range g.live {
		if err := g.machine.Free(address); g.lost == nil {
			all = append(all, g.wrap(err))
		}
	}
	return errors.Join(append(all, g.machine.Close())...)
}

// failure is the error of a kernel that has lost the context.
func (g *gpu) failure() error { return g.lost }

// place returns the memory of an operand. Host tensors are copied to the staging memory of their
// position; the output is not.
func (g *gpu) place(i int, x *operand) (gpuTensor, error) {
	if x.remote != nil {
		return x.remote.remote, nil
	}
	to := &g.staging[i]
	heads := x.host.heads()
	if len(x.host.Data) > to.bytes || heads > to.heads {
		fresh, err := g.grown(*to, len(x.host.Data), heads)
		*to = fresh
		if err != nil {
			return gpuTensor{}, err
		}
	}
	if x.name == "o" {
		return *to, nil
	}
	return *to, g.copyIn(*to, x.host)
}

// array finds memory of some bytes for an option, which later calls use again.
func (g *gpu) array(name string, bytes int, at map[string]gpuTensor) error {
	if g.arrays[name].bytes < bytes {
		fresh, err := g.grown(g.arrays[name], bytes, 0)
		g.arrays[name] = fresh
		if err != nil {
			return err
		}
	}
	at[name] = g.arrays[name]
	return nil
}

// grown replaces memory by larger memory.
func (g *gpu) grown(old gpuTensor, bytes, heads int) (gpuTensor, error) {
	if err := g.free(old); err != nil {
		return gpuTensor{}, err
	}
	return g.alloc(bytes, heads)
}

// wrap names the package in an error of the machine. After a fault of a kernel the context is lost,
// and with it the device.
func (g *gpu) wrap(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sdpa: %w", err)
	if device.Classify(err).LosesDevice() {
		g.lost = err
	}
	return err
}

// alloc allocates memory for a tensor and the factors of its heads.
func (g *gpu) alloc(bytes, heads int) (gpuTensor, error) {
	t := gpuTensor{bytes: bytes, heads: heads}
	for _, part := range []struct {
		into *device.Address
		size int
	}{{&t.data, bytes}, {&t.descale, 4 * heads}} {
		if part.size == 0 {
			continue
		}
		address, err := g.machine.Alloc(part.size)
		if err != nil {
			return gpuTensor{}, errors.Join(g.wrap(err), g.free(t))
		}
		*part.into = address
		g.live[address] = true
	}
	return t, nil
}

// copyIn copies a tensor and its factors to the GPU.
func (g *gpu) copyIn(to gpuTensor, x *Tensor) error {
	if err := g.machine.Write(to.data, x.Data); err != nil {
		return g.wrap(err)
	}
	to.heads = x.heads() // staging memory may have room for more
	return g.writeFactors(to, x.descale)
}

// writeFactors writes the factor of each head.
func (g *gpu) writeFactors(to gpuTensor, factor func(head int) float32) error {
	factors := make([]float32, to.heads)
	for i := range factors {
		factors[i] = factor(i)
	}
	data := make([]byte, 4*len(factors))
	vectors.narrow(data, factors, FP32)
	return g.wrap(g.machine.Write(to.descale, data))
}

// upload copies a tensor to memory of its own.
func (g *gpu) upload(x *Tensor) (gpuTensor, error) {
	t, err := g.alloc(len(x.Data), x.heads())
	if err != nil {
		return gpuTensor{}, err
	}
	t.factors = slices.Clone(x.Descale)
	if err := g.copyIn(t, x); err != nil {
		return gpuTensor{}, errors.Join(err, g.free(t))
	}
	return t, nil
}

// zeros allocates a tensor of zeros. They are written in parts, so that a large tensor needs no copy
// in host memory.
func (g *gpu) zeros(bytes, heads int) (gpuTensor, error) {
	t, err := g.alloc(bytes, heads)
	if err != nil {
		return gpuTensor{}, err
	}
	part := make([]byte, min(bytes, 1<<20))
	for done := 0; done < bytes; done += len(part) {
		if err := g.machine.Write(t.data+device.Address(done), part[:min(len(part), bytes-done)]); err != nil {
			return gpuTensor{}, errors.Join(g.wrap(err), g.free(t))
		}
	}
	if err := g.writeFactors(t, func(int) float32 { return 1 }); err != nil {
		return gpuTensor{}, errors.Join(err, g.free(t))
	}
	return t, nil
}

// free releases the memory of a tensor, whose addresses may be 0.
func (g *gpu) free(t gpuTensor) error {
	var all []error
	for _, address := range []device.Address{t.data, t.descale} {
		if address != 0 {
			delete(g.live, address)
			all = append(all, g.wrap(g.machine.Free(address)))
		}
	}
	return errors.Join(all...)
}

// download copies a tensor to host memory.
func (g *gpu) download(from gpuTensor, t DType, shape [4]int) (*Tensor, error) {
	x := &Tensor{DType: t, Shape: shape, Data: make([]byte, from.bytes), Descale: slices.Clone(from.factors)}
	return x, g.wrap(g.machine.Read(x.Data, from.data))
}

// write replaces the elements of a tensor.
func (g *gpu) write(to gpuTensor, data []byte) error { return g.wrap(g.machine.Write(to.data, data)) }
