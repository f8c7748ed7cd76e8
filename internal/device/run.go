package device

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"attune/internal/tensormap"
)

// Machine is memory and launches.
type Machine interface {
	Facts() Facts
	// Load makes an entry function of an image (cubin or PTX) ready to launch.
	Load(image []byte, entry string) (Function, error)
	Alloc(bytes int) (Address, error)
	Free(Address) error
	Write(to Address, data []byte) error
	Read(data []byte, from Address) error
	// EncodeTensorMap gives the bytes that a kernel takes for a map of a buffer in the machine's memory.
	EncodeTensorMap(m *tensormap.Map, buffer Address) ([]byte, error)
	// Launch launches a job's function with values for its arguments, waits for the end and returns the error of either.
	Launch(f Function, job *Job, args [][]byte) error
	Close() error
}

// Address is a place in a machine's memory.
type Address uint64

// Function is a loaded entry function.
type Function interface {
	Attributes() (Attributes, error)
}

// guardBytes stand before and after each buffer. Before it they keep the buffer's alignment.
const guardBytes = 4096

// poisonBytes are written at once: a large output need not exist on the host as well.
const poisonBytes = 1 << 20

// fills are what the guards and the outputs hold before the first and before the second launch. They differ, so that a kernel that
// happens to write one of these bytes is seen in the other launch. As halves both poisons are NaN.
var fills = [2]struct{ guard, poison byte }{{0xA5, 0xFF}, {0x5A, 0x7F}}

// maxFindings keeps a kernel that does everything wrong from filling the report.
const maxFindings = 8

// Run takes a job through a machine twice, under guard.
func Run(m Machine, job Job) (*Outcome, error) {
	f, err := m.Load(job.Image, job.Entry)
	if err != nil {
		return nil, err
	}
	attributes, err := f.Attributes()
	if err != nil {
		return nil, err
	}
	buffers, values, err := Bind(m, job)
	defer release(m, buffers)
	if err != nil {
		return nil, err
	}
	held := make([][2][]byte, len(buffers)) // by each buffer after each launch, guards included
	for pass := range fills {
		if pass > 0 { // Bind has prepared the first
			if err := prepare(m, buffers, pass); err != nil {
				return nil, err
			}
		}
		if err := m.Launch(f, &job, values); err != nil {
			return nil, err
		}
		for i, b := range buffers {
			held[i][pass] = make([]byte, b.size+2*guardBytes)
			if err := m.Read(held[i][pass], b.base); err != nil {
				return nil, err
			}
		}
	}
	outcome := &Outcome{Loaded: attributes}
	for i, b := range buffers {
		outcome.Findings = append(outcome.Findings, b.inspect(held[i])...)
		if b.role != input {
			outcome.Outputs = append(outcome.Outputs, b.inner(held[i][0]))
		}
	}
	outcome.Findings = outcome.Findings[:min(len(outcome.Findings), maxFindings)]
	return outcome, nil
}

// Buffer is a buffer of a job in a machine's memory, between its guards.
type Buffer struct {
	argument int
	base     Address // of the first guard
	size     int
	role     role
	initial  []byte // nil for an output
}

// role is what a kernel may do with a buffer.
type role int

const (
	input role = iota
	output
	inOut
)

// Bind places the buffers of a job in a machine's memory, filled and poisoned, and gives the values of all arguments: those that are tensor
// maps are of these buffers and of no others. The caller frees the buffers, also after an error.
func Bind(m Machine, job Job) ([]*Buffer, [][]byte, error) {
	if err := job.Check(); err != nil {
		return nil, nil, err
	}
	var buffers []*Buffer
	values, at := make([][]byte, len(job.Args)), make([]Address, len(job.Args))
	for i, arg := range job.Args {
		if !arg.IsBuffer() {
			values[i] = arg.Scalar
			continue
		}
		b := newBuffer(i, arg)
		base, err := m.Alloc(b.size + 2*guardBytes)
		if err != nil {
			return buffers, nil, fmt.Errorf("argument %d, %d bytes: %w", i, b.size, err)
		}
		b.base = base
		buffers = append(buffers, b)
		if err := b.prepare(m, 0); err != nil {
			return buffers, nil, err
		}
		at[i] = base + guardBytes
		values[i] = binary.LittleEndian.AppendUint64(nil, uint64(at[i]))
	}
	for i, arg := range job.Args {
		if arg.TensorMap == nil {
			continue
		}
		value, err := m.EncodeTensorMap(&arg.TensorMap.Map, at[arg.TensorMap.Arg])
		if err != nil {
			return buffers, nil, fmt.Errorf("argument %d: %w", i, err)
		}
		values[i] = value
	}
	return buffers, values, nil
}

func newBuffer(index int, arg Arg) *Buffer {
	b := &Buffer{argument: index, size: arg.BufferBytes()}
	switch {
	case arg.Input != nil:
		b.role, b.initial = input, arg.Input
	case arg.InOut != nil:
		b.role, b.initial = inOut, arg.InOut
	default:
		b.role = output
	}
	return b
}

// Free gives the memory back.
func (b *Buffer) Free(m Machine) error { return m.Free(b.base) }

func release(m Machine, buffers []*Buffer) {
	for _, b := range buffers {
		_ = b.Free(m) // after a fault nothing can be freed, and the fault is what counts
	}
}

func prepare(m Machine, buffers []*Buffer, pass int) error {
	for _, b := range buffers {
		if err := b.prepare(m, pass); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes guards and contents for one of the two launches.
func (b *Buffer) prepare(m Machine, pass int) error {
	guard := bytes.Repeat([]byte{fills[pass].guard}, guardBytes)
	content := b.base + guardBytes
	if err := m.Write(b.base, guard); err != nil {
		return err
	}
	if err := m.Write(content+Address(b.size), guard); err != nil {
		return err
	}
	if b.initial != nil {
		return m.Write(content, b.initial)
	}
	poison := bytes.Repeat([]byte{fills[pass].poison}, min(b.size, poisonBytes))
	for done := 0; done < b.size; done += len(poison) {
		if err := m.Write(content+Address(done), poison[:min(len(poison), b.size-done)]); err != nil {
			return err
		}
	}
	return nil
}

// inner is the buffer without its guards.
func (b *Buffer) inner(whole []byte) []byte { return whole[guardBytes : guardBytes+b.size] }

// inspect looks at what a buffer held after the two launches for what no right kernel leaves there.
func (b *Buffer) inspect(held [2][]byte) []Finding {
	var findings []Finding
	report := func(kind string, s spots, format string, args ...any) {
		if s.count > 0 {
			text := fmt.Sprintf("argument %d: %d ", b.argument, s.count) + fmt.Sprintf(format, args...)
			findings = append(findings, Finding{kind, fmt.Sprintf("%s, the first at byte %d", text, s.first-guardBytes)})
		}
	}
	first, second := held[0], held[1]
	start, end := guardBytes, guardBytes+b.size
	guardTouched := func(i int) bool { return first[i] != fills[0].guard || second[i] != fills[1].guard }
	report(WroteOutside, find(end, end+guardBytes, guardTouched), "bytes written past its end (it has %d)", b.size)
	report(WroteOutside, find(0, start, guardTouched), "bytes written before its start")
	// Nearly all kernels leave nothing to be looked for byte by byte, which takes long in a large buffer. Poisons differ, so that what is not written does.
	if b.role == input {
		changed := func(i int) bool { return first[i] != b.initial[i-start] || second[i] != b.initial[i-start] }
		if !bytes.Equal(b.inner(first), b.initial) || !bytes.Equal(b.inner(second), b.initial) {
			report(InputChanged, find(start, end, changed), "bytes of an input changed")
		}
		return findings
	}
	if bytes.Equal(b.inner(first), b.inner(second)) {
		return findings
	}
	unwritten := func(i int) bool {
		return b.role == output && first[i] == fills[0].poison && second[i] == fills[1].poison
	}
	differing := func(i int) bool { return first[i] != second[i] && !unwritten(i) }
	report(Unwritten, find(start, end, unwritten), "of %d bytes never written", b.size)
	report(NotRepeatable, find(start, end, differing), "bytes differ between two launches on the same input")
	return findings
}

// spots are the bytes for which something is so.
type spots struct{ first, count int }

// find looks for the bytes from start up to end for which is holds.
func find(start, end int, is func(i int) bool) spots {
	var s spots
	for i := start; i < end; i++ {
		if is(i) {
			if s.count == 0 {
				s.first = i
			}
			s.count++
		}
	}
	return s
}
