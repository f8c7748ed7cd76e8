package devicetest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"attune/internal/device"
	"attune/internal/tensormap"
)

// Kernel does the work of a whole launch.
type Kernel func(l *Launch) error

// Machine is a device.Machine. It ignores the image and finds a kernel by its entry name.
type Machine struct {
	Kernels    map[string]Kernel
	Attributes error // error of Function.Attributes
	FailAlloc  int   // number of the allocation that fails, from 1; 0 for none
	FailWrite  int   // number of the write that fails
	FailRead   int   // number of the read that fails
	FailMap    error // error of EncodeTensorMap

	Launches int

	memory                map[device.Address][]byte
	top                   device.Address
	allocs, writes, reads int
	fault                 error // the fault that lost the machine
}

var _ device.Machine = (*Machine)(nil)

// Launch is a kernel's view of its launch.
type Launch struct {
	machine *Machine
	Job     *device.Job
	Args    [][]byte
}

// Pointer is the value of an argument that is a buffer.
func (l *Launch) Pointer(i int) device.Address {
	return device.Address(binary.LittleEndian.Uint64(l.Args[i]))
}

// Int is the value of an argument that is an int32.
func (l *Launch) Int(i int) int { return int(int32(binary.LittleEndian.Uint32(l.Args[i]))) }

// Map is the value of an argument that is a tensor map.
func (l *Launch) Map(i int) TensorMap {
	var m TensorMap
	if err := json.Unmarshal(l.Args[i], &m); err != nil {
		panic(err)
	}
	return m
}

// TensorMap is a tensor map as the machine encodes it.
type TensorMap struct {
	tensormap.Map
	Address device.Address
}

// At is memory that the kernel may read and write. An address outside every allocation ends the
// launch.
func (l *Launch) At(a device.Address, bytes int) []byte {
	data, err := l.machine.at(a, bytes)
	if err != nil {
		panic(err)
	}
	return data
}

// Allocated is how many allocations have not been freed.
func (m *Machine) Allocated() int { return len(m.memory) }

// Facts describes the machine.
func (m *Machine) Facts() device.Facts {
	return device.Facts{Kind: "test", Name: "Go functions", Arch: "sm_90", Multiprocessors: 1}
}

type function struct {
	run        Kernel
	attributes error
}

func (f function) Attributes() (device.Attributes, error) {
	return device.Attributes{Registers: 32, MaxThreads: 1024}, f.attributes
}

// Load finds a kernel.
func (m *Machine) Load(_ []byte, entry string) (device.Function, error) {
	run, ok := m.Kernels[entry]
	if !ok {
		return nil, &device.Fault{Code: "NOT_FOUND", Text: "named symbol not found", Operation: "find the function " + entry}
	}
	return function{run, m.Attributes}, nil
}

// Alloc returns fresh memory, far from every other allocation.
func (m *Machine) Alloc(bytes int) (device.Address, error) {
	if m.allocs++; m.allocs == m.FailAlloc {
		return 0, errors.New("out of memory")
	}
	const spacing = 1 << 20
	if m.memory == nil {
		m.memory = map[device.Address][]byte{}
	}
	a := m.top + spacing
	m.top = (a + device.Address(bytes) + spacing - 1) / spacing * spacing
	m.memory[a] = make([]byte, bytes)
	return a, nil
}

// Free releases an allocation.
func (m *Machine) Free(a device.Address) error {
	if m.memory[a] == nil {
		return fmt.Errorf("free of %#x, which is not an allocation", a)
	}
	delete(m.memory, a)
	return m.fault
}

// Write copies data to the machine's memory.
func (m *Machine) Write(to device.Address, data []byte) error {
	if m.writes++; m.writes == m.FailWrite {
		return errors.New("the write failed")
	}
	memory, err := m.at(to, len(data))
	copy(memory, data)
	return err
}

// Read copies data from the machine's memory.
func (m *Machine) Read(data []byte, from device.Address) error {
	if m.reads++; m.reads == m.FailRead {
		return errors.New("the read failed")
	}
	memory, err := m.at(from, len(data))
	copy(data, memory)
	return err
}

func (m *Machine) at(a device.Address, bytes int) ([]byte, error) {
	if m.fault != nil {
		return nil, m.fault
	}
	for base, memory := range m.memory {
		if a >= base && a+device.Address(bytes) <= base+device.Address(len(memory)) {
			return memory[a-base:][:bytes:bytes], nil
		}
	}
	m.fault = &device.Fault{Code: "ILLEGAL_ADDRESS", Text: fmt.Sprintf("%#x", a), Operation: "run the kernel"}
	return nil, m.fault
}

// EncodeTensorMap encodes a tensor map for Launch.Map.
func (m *Machine) EncodeTensorMap(t *tensormap.Map, buffer device.Address) ([]byte, error) {
	if m.FailMap != nil {
		return nil, m.FailMap
	}
	return json.Marshal(TensorMap{*t, buffer})
}

// Launch calls the kernel.
func (m *Machine) Launch(f device.Function, job *device.Job, args [][]byte) (err error) {
	if m.fault != nil {
		return m.fault
	}
	m.Launches++
	defer func() {
		if reason := recover(); reason != nil {
			if m.fault == nil || reason != m.fault {
				panic(reason)
			}
			err = m.fault
		}
	}()
	return f.(function).run(&Launch{m, job, args})
}

// Close frees nothing, so that a test can count the allocations.
func (m *Machine) Close() error { return nil }
