package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/tensormap"
)

// Machine is memory and launches. Run and package cuda's timing are built on it.
type Machine interface {
	Facts() Facts
	// Load makes an entry function of an image (cubin or PTX) ready to launch.
	Load(image []byte, entry string) (Function, error)
	Alloc(bytes int) (Address, error)
	Free(Address) error
	Write(to Address, data []byte) error
	Read(data []byte, from Address) error
	// EncodeTensorMap returns the kernel parameter for a tensor map of a buffer in device memory.
	EncodeTensorMap(m *tensormap.Map, buffer Address) ([]byte, error)
	// Launch launches a job's function with its argument values and waits until it has finished. It
	// returns the error of the launch or of the kernel.
	Launch(f Function, job *Job, args [][]byte) error
	Close() error
}

// Address is an address in a machine's memory.
type Address uint64

// Function is a loaded entry function.
type Function interface {
	Attributes() (Attributes, error)
}

// guardBytes is the size of each of the two guards around a buffer. A multiple of every alignment
// that a kernel needs keeps the buffer as aligned as its allocation.
const guardBytes = 4096

// poisonBytes is the size of one poison write, so that a large output needs no copy on the host.
const poisonBytes = 1 << 20

// fills are the guard and poison bytes before the first and before the second launch. They differ
// between the launches: a kernel that happens to write the same byte is found in the other launch.
// As FP16 both poisons are NaN.
var fills = [2]struct{ guard, poison byte }{{0xA5, 0xFF}, {0x5A, 0x7F}}

// maxFindings limits the length of the report.
const maxFindings = 8

// Run runs a job on a machine twice, under guard.
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
	after := make([][2][]byte, len(buffers)) // contents after each launch, guards included
	for pass := range fills {
		if pass > 0 { // Bind has prepared the first pass
			if err := prepare(m, buffers, pass); err != nil {
				return nil, err
			}
		}
		if err := m.Launch(f, &job, values); err != nil {
			return nil, err
		}
		for i, b := range buffers {
			after[i][pass] = make([]byte, b.size+2*guardBytes)
			if err := m.Read(after[i][pass], b.base); err != nil {
				return nil, err
			}
		}
	}
	outcome := &Outcome{Loaded: attributes}
	var repeated [][]byte
	for i, b := range buffers {
		outcome.Findings = append(outcome.Findings, b.inspect(after[i], job.Unordered)...)
		if b.isOutput() {
			outcome.Outputs = append(outcome.Outputs, b.inner(after[i][0]))
			repeated = append(repeated, b.inner(after[i][1]))
		}
	}
	if job.Unordered {
		outcome.AddRepeated(repeated)
	}
	if err := relaunch(m, f, &job, buffers, values, outcome); err != nil {
		return nil, err
	}
	outcome.Findings = outcome.Findings[:min(len(outcome.Findings), maxFindings)]
	return outcome, nil
}

// AddRepeated adds the outputs of a further launch of an unordered job, unless they are those of the
// first.
func (o *Outcome) AddRepeated(outputs [][]byte) {
	if !slices.EqualFunc(o.Outputs, outputs, bytes.Equal) {
		o.Repeated = append(o.Repeated, outputs)
	}
}

// Buffer is a buffer of a job in a machine's memory, between two guards.
type Buffer struct {
	argument int
	variable finding.Variable
	base     Address // start of the leading guard
	size     int
	role     role
	initial  []byte // nil for an output
	zero     bool   // scratch that is cleared before every launch
}

// role is the access that a kernel has to a buffer.
type role int

const (
	input role = iota
	output
	inOut
	scratch
)

// Bind allocates the buffers of a job, fills the inputs and poisons the outputs. It returns the
// buffers and the values of all arguments; tensor maps point into these buffers. The caller frees
// the buffers, also after an error.
func Bind(m Machine, job Job) ([]*Buffer, [][]byte, error) {
	if err := job.Check(); err != nil {
		return nil, nil, err
	}
	var buffers []*Buffer
	addresses := make([]Address, len(job.Args))
	for i, arg := range job.Args {
		if !arg.IsBuffer() {
			continue
		}
		b := newBuffer(i, arg)
		base, err := m.Alloc(b.size + 2*guardBytes)
		if err != nil {
			return buffers, nil, fmt.Errorf("%s, %d bytes: %w", arg.Variable(i), b.size, err)
		}
		b.base = base
		buffers = append(buffers, b)
		if err := b.prepare(m, 0); err != nil {
			return buffers, nil, err
		}
		addresses[i] = base + guardBytes
	}
	values, err := Values(m, job, addresses)
	return buffers, values, err
}

// Values returns the values of a job's arguments, with its buffers at the addresses of the same
// indices. Tensor maps point into these buffers.
func Values(m Machine, job Job, addresses []Address) ([][]byte, error) {
	values := make([][]byte, len(job.Args))
	for i, arg := range job.Args {
		switch {
		case arg.IsBuffer():
			values[i] = binary.LittleEndian.AppendUint64(nil, uint64(addresses[i]))
		case arg.Scalar != nil:
			values[i] = arg.Scalar
		default:
			value, err := m.EncodeTensorMap(&arg.TensorMap.Map, addresses[arg.TensorMap.Arg])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", arg.Variable(i), err)
			}
			values[i] = value
		}
	}
	return values, nil
}

func newBuffer(index int, arg Arg) *Buffer {
	b := &Buffer{argument: index, variable: arg.Variable(index), size: arg.BufferBytes()}
	switch {
	case arg.Input != nil:
		b.role, b.initial = input, arg.Input
	case arg.InOut != nil:
		b.role, b.initial = inOut, arg.InOut
	case arg.Scratch > 0:
		b.role, b.zero = scratch, arg.Zero
	default:
		b.role = output
	}
	return b
}

// isOutput reports whether what the kernel leaves in the buffer is a result.
func (b *Buffer) isOutput() bool { return b.role == output || b.role == inOut }

// Free releases the buffer's memory.
func (b *Buffer) Free(m Machine) error { return m.Free(b.base) }

func release(m Machine, buffers []*Buffer) {
	for _, b := range buffers {
		_ = b.Free(m) // fails after a fault; the caller returns the fault itself
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

// prepare writes the guards and the contents for one of the two launches.
func (b *Buffer) prepare(m Machine, pass int) error {
	guard := bytes.Repeat([]byte{fills[pass].guard}, guardBytes)
	start := b.base + guardBytes
	if err := m.Write(b.base, guard); err != nil {
		return err
	}
	if err := m.Write(start+Address(b.size), guard); err != nil {
		return err
	}
	if b.initial != nil {
		return m.Write(start, b.initial)
	}
	switch {
	case b.role != scratch:
		return b.fill(m, fills[pass].poison)
	case pass == 0 || b.zero:
		return b.fill(m, 0)
	}
	return nil
}

// fill sets all bytes of the buffer.
func (b *Buffer) fill(m Machine, value byte) error {
	part := bytes.Repeat([]byte{value}, min(b.size, poisonBytes))
	for done := 0; done < b.size; done += len(part) {
		if err := m.Write(b.Start()+Address(done), part[:min(len(part), b.size-done)]); err != nil {
			return err
		}
	}
	return nil
}

// IsCleared reports whether the buffer is cleared before every launch.
func (b *Buffer) IsCleared() bool { return b.zero }

// Clear clears the buffers that every launch finds zero.
func Clear(m Machine, buffers []*Buffer) error {
	for _, b := range buffers {
		if !b.zero {
			continue
		}
		if err := b.fill(m, 0); err != nil {
			return err
		}
	}
	return nil
}

// found is a finding about the buffer.
func (b *Buffer) found(kind finding.Kind, format string, args ...any) finding.Finding {
	return finding.Of(kind, b.variable, b.variable.String()+": "+fmt.Sprintf(format, args...))
}

// inner is the buffer without its guards.
func (b *Buffer) inner(whole []byte) []byte { return whole[guardBytes : guardBytes+b.size] }

// inspect reports the findings in a buffer, from its contents after each of the two launches. The
// launches of an unordered job may differ.
func (b *Buffer) inspect(after [2][]byte, unordered bool) []finding.Finding {
	var findings []finding.Finding
	report := func(kind finding.Kind, m matches, format string, args ...any) {
		if m.count > 0 {
			findings = append(findings, b.found(kind, "%d %s, the first at byte %d", m.count, fmt.Sprintf(format, args...), m.first-guardBytes))
		}
	}
	first, second := after[0], after[1]
	start, end := guardBytes, guardBytes+b.size
	guardTouched := func(i int) bool { return first[i] != fills[0].guard || second[i] != fills[1].guard }
	report(finding.WroteOutside, find(end, end+guardBytes, guardTouched), "bytes written past its end (it has %d)", b.size)
	report(finding.WroteOutside, find(0, start, guardTouched), "bytes written before its start")
	if b.role == scratch {
		return findings
	}
	// The byte-by-byte search is slow in a large buffer, so bytes.Equal decides first whether it is
	// needed. An unwritten byte fails bytes.Equal too, because the two poisons differ.
	if b.role == input {
		changed := func(i int) bool { return first[i] != b.initial[i-start] || second[i] != b.initial[i-start] }
		if !bytes.Equal(b.inner(first), b.initial) || !bytes.Equal(b.inner(second), b.initial) {
			report(finding.InputChanged, find(start, end, changed), "bytes of an input changed")
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
	report(finding.Unwritten, find(start, end, unwritten), "of %d bytes never written", b.size)
	if unordered {
		return findings
	}
	report(finding.NotRepeatable, find(start, end, differing), "bytes differ between two launches on the same input")
	return findings
}

// matches are the bytes that satisfy a condition: the index of the first, and how many there are.
type matches struct{ first, count int }

// find tests the bytes from start to end, end excluded.
func find(start, end int, match func(i int) bool) matches {
	var m matches
	for i := start; i < end; i++ {
		if match(i) {
			if m.count == 0 {
				m.first = i
			}
			m.count++
		}
	}
	return m
}
