package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
	// Launch launches, waits for the end and returns the error of either.
	Launch(f Function, grid, block [3]int, dynamicSharedBytes int, args [][]byte) error
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

const guardByte = 0xA5

// poisons fill the outputs before the first and before the second launch. As halves both are NaN.
var poisons = [2]byte{0xFF, 0x7F}

// maxFindings keeps a kernel that does everything wrong from filling the report.
const maxFindings = 8

// Run takes a job through a machine twice, under guard.
func Run(m Machine, job Job) (*Outcome, error) {
	if err := job.check(); err != nil {
		return nil, err
	}
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
	outcome := &Outcome{Loaded: attributes}
	var passes [2][][]byte
	for pass := range passes {
		for _, b := range buffers {
			if err := b.prepare(m, poisons[pass]); err != nil {
				return nil, err
			}
		}
		if err := m.Launch(f, job.Grid, job.Block, job.DynamicSharedBytes, values); err != nil {
			return nil, err
		}
		for _, b := range buffers {
			data, findings, err := b.inspect(m)
			if err != nil {
				return nil, err
			}
			outcome.Findings = append(outcome.Findings, findings...)
			if b.input == nil {
				passes[pass] = append(passes[pass], data)
			}
		}
	}
	outcome.Outputs = passes[0]
	outcome.Findings = append(outcome.Findings, comparePasses(passes)...)
	if len(outcome.Findings) > maxFindings {
		outcome.Findings = outcome.Findings[:maxFindings]
	}
	return outcome, nil
}

// Buffer is a buffer of a job in a machine's memory, between its guards.
type Buffer struct {
	argument int
	base     Address // of the first guard
	size     int
	input    []byte // nil for an output
}

// Bind places the buffers of a job in a machine's memory, filled and poisoned, and gives the values of all arguments. The
// caller frees the buffers, also after an error.
func Bind(m Machine, job Job) ([]*Buffer, [][]byte, error) {
	var buffers []*Buffer
	var values [][]byte
	for i, arg := range job.Args {
		if arg.Scalar != nil {
			values = append(values, arg.Scalar)
			continue
		}
		b := &Buffer{argument: i, size: arg.Output, input: arg.Input}
		if b.input != nil {
			b.size = len(b.input)
		}
		base, err := m.Alloc(b.size + 2*guardBytes)
		if err != nil {
			return buffers, nil, fmt.Errorf("argument %d, %d bytes: %w", i, b.size, err)
		}
		b.base = base
		buffers = append(buffers, b)
		if err := b.prepare(m, poisons[0]); err != nil {
			return buffers, nil, err
		}
		values = append(values, binary.LittleEndian.AppendUint64(nil, uint64(base)+guardBytes))
	}
	return buffers, values, nil
}

// Free gives the memory back.
func (b *Buffer) Free(m Machine) error { return m.Free(b.base) }

func release(m Machine, buffers []*Buffer) {
	for _, b := range buffers {
		_ = b.Free(m) // after a fault nothing can be freed, and the fault is what counts
	}
}

// prepare writes guards and contents.
func (b *Buffer) prepare(m Machine, poison byte) error {
	whole := bytes.Repeat([]byte{guardByte}, b.size+2*guardBytes)
	inner := whole[guardBytes : guardBytes+b.size]
	if b.input != nil {
		copy(inner, b.input)
	} else {
		for i := range inner {
			inner[i] = poison
		}
	}
	return m.Write(b.base, whole)
}

// inspect reads a buffer back and looks for what the kernel should not have touched.
func (b *Buffer) inspect(m Machine) ([]byte, []Finding, error) {
	whole := make([]byte, b.size+2*guardBytes)
	if err := m.Read(whole, b.base); err != nil {
		return nil, nil, err
	}
	var findings []Finding
	report := func(kind, format string, args ...any) {
		findings = append(findings, Finding{kind, fmt.Sprintf("argument %d: ", b.argument) + fmt.Sprintf(format, args...)})
	}
	before, inner, after := whole[:guardBytes], whole[guardBytes:guardBytes+b.size], whole[guardBytes+b.size:]
	if first, count := differing(after, guardByte); count > 0 {
		report(WroteOutside, "%d bytes written past its end, the first %d bytes behind it", count, first)
	}
	if first, count := differing(before, guardByte); count > 0 {
		report(WroteOutside, "%d bytes written before its start, the farthest %d bytes ahead of it", count, guardBytes-first)
	}
	if b.input != nil && !bytes.Equal(inner, b.input) {
		first := 0
		for inner[first] == b.input[first] {
			first++
		}
		report(InputChanged, "an input was changed, first at byte %d", first)
	}
	return inner, findings, nil
}

// differing counts the bytes that are not want, and gives the index of the first.
func differing(data []byte, want byte) (first, count int) {
	first = -1
	for i, b := range data {
		if b != want {
			if first < 0 {
				first = i
			}
			count++
		}
	}
	return first, count
}

// comparePasses looks for bytes that still hold the poison of both launches and for bytes that differ otherwise.
func comparePasses(passes [2][][]byte) []Finding {
	var findings []Finding
	for i := range passes[0] {
		unwritten, other := 0, 0
		firstUnwritten, firstOther := 0, 0
		for at, first := range passes[0][i] {
			second := passes[1][i][at]
			switch {
			case first == second:
			case first == poisons[0] && second == poisons[1]:
				if unwritten == 0 {
					firstUnwritten = at
				}
				unwritten++
			default:
				if other == 0 {
					firstOther = at
				}
				other++
			}
		}
		if unwritten > 0 {
			findings = append(findings, Finding{Unwritten,
				fmt.Sprintf("output %d: %d of %d bytes never written, the first at byte %d", i, unwritten, len(passes[0][i]), firstUnwritten)})
		}
		if other > 0 {
			findings = append(findings, Finding{NotRepeatable,
				fmt.Sprintf("output %d: %d bytes differ between two launches on the same input, the first at byte %d", i, other, firstOther)})
		}
	}
	return findings
}
