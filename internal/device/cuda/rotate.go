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
	return r.machine.launch(r.rotate, r.machine.clock.stream, &helperGrid, r.arguments(c.all, step))
}

// captureRewrite adds a kernel that writes the inputs of a copy again, each time the same.
func (r *rotator) captureRewrite(c *bufferCopy) error {
	return r.machine.launch(r.rotate, r.machine.clock.stream, &helperGrid, r.arguments(c.inputs, 0))
}

func (r *rotator) arguments(t rotationTable, step int) [][]byte {
	return [][]byte{address(t.at), word(t.buffers), address(r.state), word(step)}
}

// rotationTable is the list of buffers that a launch of the rotation writes.
type rotationTable struct {
	at      device.Address // 0 for none
	buffers int
	bytes   int // of the buffers
}

// newTable writes the table of the buffers for which keep is true.
func (m *Machine) newTable(job device.Job, buffers, originals []*device.Buffer, keep func(*device.Buffer) bool) (t rotationTable, err error) {
	var own, from []*device.Buffer
	for i, b := range buffers {
		if keep(b) {
			own, from = append(own, b), append(from, originals[i])
			t.bytes += b.Size()
		}
	}
	if t.buffers = len(own); t.buffers == 0 {
		return t, nil
	}
	table := device.RotationTable(job, own, from)
	if t.at, err = m.Alloc(len(table)); err != nil {
		return t, err
	}
	return t, m.Write(t.at, table)
}

func address(a device.Address) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(a)) }
func word(v int) []byte               { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// bufferCopy is one copy of a job's buffers.
type bufferCopy struct {
	buffers []*device.Buffer
	args    [][]byte
	last    device.Rotation // of the copy

	all         rotationTable
	inputs      rotationTable // with the in-out buffers
	inOuts      rotationTable
	restoreGrid device.Job // launch of a restore of the in-out buffers
}

// newCopy allocates a copy. The originals have the inputs without rotation.
func (m *Machine) newCopy(job device.Job, originals []*device.Buffer) (*bufferCopy, error) {
	c := &bufferCopy{}
	var err error
	if c.buffers, c.args, err = device.Bind(m, job); err != nil {
		return c, err
	}
	for _, part := range []struct {
		table *rotationTable
		keep  func(*device.Buffer) bool
	}{
		{&c.all, func(*device.Buffer) bool { return true }},
		{&c.inputs, func(b *device.Buffer) bool { return b.IsInput() || b.IsInOut() }},
		{&c.inOuts, (*device.Buffer).IsInOut},
	} {
		if *part.table, err = m.newTable(job, c.buffers, originals, part.keep); err != nil {
			return c, err
		}
	}
	c.restoreGrid = restoreGrid(c.inOuts.bytes)
	return c, nil
}

func (c *bufferCopy) free(m *Machine) {
	for _, b := range c.buffers {
		_ = b.Free(m) // fails after a fault; the caller returns the fault itself
	}
	for _, t := range []rotationTable{c.all, c.inputs, c.inOuts} {
		if t.at != 0 {
			_ = m.Free(t.at)
		}
	}
}
