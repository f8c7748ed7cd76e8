package cuda

import (
	_ "embed"
	"encoding/binary"
	"fmt"

	"attune/internal/device"
)

// rotatePTX has the kernels that give timed launches new inputs and compare their outputs. The
// driver compiles it.
//
//go:embed rotate.ptx
var rotatePTX []byte

const (
	advanceEntry = "attune_advance"
	rotateEntry  = "attune_rotate"
	compareEntry = "attune_compare"
)

// helperGrid is the launch of these kernels: enough threads to reach the memory bandwidth.
var helperGrid = device.Job{Grid: [3]int{528, 1, 1}, Block: [3]int{256, 1, 1}}

// rotator rotates the inputs of timed jobs, as package device describes.
type rotator struct {
	machine                  *Machine
	advance, rotate, compare function
	state                    device.Address // of the count and the secret
	secret, count            uint64         // count is the device's
}

func (m *Machine) newRotator(secret uint64) (*rotator, error) {
	r := &rotator{machine: m, secret: secret}
	for _, k := range []struct {
		entry string
		into  *function
	}{{advanceEntry, &r.advance}, {rotateEntry, &r.rotate}, {compareEntry, &r.compare}} {
		f, err := m.Load(rotatePTX, k.entry)
		if err != nil {
			return nil, fmt.Errorf("timed launches cannot be checked: %v", err) // a fault here is not the kernel's
		}
		*k.into = f.(function)
	}
	var err error
	if r.state, err = m.Alloc(16); err != nil {
		return nil, err
	}
	return r, r.set(0)
}

// set sets the count of rotations.
func (r *rotator) set(count uint64) error {
	r.count = count
	return r.machine.Write(r.state, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, count), r.secret))
}

func (r *rotator) free() {
	if r != nil {
		_ = r.machine.Free(r.state) // fails after a fault; the caller returns the fault itself
	}
}

// rotation identifies a step of the last rotation.
func (r *rotator) rotation(step int) device.Rotation {
	return device.Rotation{Secret: r.secret, Count: r.count, Step: uint32(step)}
}

// captureAdvance and captureRotate add a kernel to the graph that is being captured. They must run
// on the owner goroutine.
func (r *rotator) captureAdvance() error {
	one := device.Job{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}
	return r.machine.launch(r.advance, r.machine.clock.stream, &one, [][]byte{address(r.state)})
}

func (r *rotator) captureRotate(c *bufferCopy, step int) error {
	return r.machine.launch(r.rotate, r.machine.clock.stream, &helperGrid, r.arguments(c, step))
}

// captureRewrite adds a kernel that writes the inputs of a copy again, each time the same.
func (r *rotator) captureRewrite(c *bufferCopy) error {
	return r.machine.launch(r.rotate, r.machine.clock.stream, &helperGrid, [][]byte{address(c.inputTable), word(c.inputCount), address(r.state), word(0)})
}

func (r *rotator) arguments(c *bufferCopy, step int) [][]byte {
	return [][]byte{address(c.table), word(len(c.buffers)), address(r.state), word(step)}
}

func address(a device.Address) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(a)) }
func word(v int) []byte               { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// bufferCopy is one copy of a job's buffers.
type bufferCopy struct {
	buffers []*device.Buffer
	args    [][]byte
	table   device.Address  // rotation table
	last    device.Rotation // of the copy

	inputTable device.Address // rotation table of the inputs and in-out buffers
	inputCount int

	restoreTable device.Address // rotation table of the in-out buffers; 0 without any
	restoreCount int            // of in-out buffers
	restoreGrid  device.Job     // launch of their restore
}

// newCopy allocates a copy. The originals have the inputs without rotation.
func (m *Machine) newCopy(job device.Job, originals []*device.Buffer) (*bufferCopy, error) {
	c := &bufferCopy{}
	var err error
	if c.buffers, c.args, err = device.Bind(m, job); err != nil {
		return c, err
	}
	table := device.RotationTable(job, c.buffers, originals)
	if c.table, err = m.Alloc(max(len(table), 1)); err != nil {
		return c, err
	}
	if err := m.Write(c.table, table); err != nil {
		return c, err
	}
	if err := c.addInputs(m, job, originals); err != nil {
		return c, err
	}
	return c, c.addRestore(m, job, originals)
}

// addInputs gives a copy the table of its inputs and in-out buffers.
func (c *bufferCopy) addInputs(m *Machine, job device.Job, originals []*device.Buffer) error {
	var own, from []*device.Buffer
	for i, b := range c.buffers {
		if b.IsInput() || b.IsInOut() {
			own, from = append(own, b), append(from, originals[i])
		}
	}
	table := device.RotationTable(job, own, from)
	var err error
	if c.inputTable, err = m.Alloc(max(len(table), 1)); err != nil {
		return err
	}
	c.inputCount = len(own)
	return m.Write(c.inputTable, table)
}

func (c *bufferCopy) free(m *Machine) {
	for _, b := range c.buffers {
		_ = b.Free(m) // fails after a fault; the caller returns the fault itself
	}
	if c.table != 0 {
		_ = m.Free(c.table)
	}
	if c.inputTable != 0 {
		_ = m.Free(c.inputTable)
	}
	if c.restoreTable != 0 {
		_ = m.Free(c.restoreTable)
	}
}
