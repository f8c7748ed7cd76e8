package device

import (
	"bytes"

	"attune/internal/finding"
)

// Differences are the bytes in which two buffers differ: how many, and the index of the first.
type Differences struct{ Bytes, First int }

// Size is the size of the buffer without its guards.
func (b *Buffer) Size() int { return b.size }

// InspectTimed reports findings from the differences of each buffer between a timed launch and an
// untimed one on the same inputs. The outputs of an unordered job may differ.
func InspectTimed(unordered bool, buffers []*Buffer, differences []Differences) []finding.Finding {
	var findings []finding.Finding
	for i, b := range buffers {
		d := differences[i]
		if d.Bytes == 0 || b.role == scratch || unordered && b.role != input {
			continue
		}
		if b.role == input {
			findings = append(findings, b.found(finding.InputChanged, "%d bytes of an input changed while it was timed, the first at byte %d", d.Bytes, d.First))
			continue
		}
		findings = append(findings, b.found(finding.TimedOutputDiffers, "%d of %d bytes that a timed launch wrote differ from those of "+
			"an untimed launch on the same inputs, the first at byte %d", d.Bytes, b.size, d.First))
	}
	return findings
}

// InspectGuards reports writes outside of buffers that Bind has prepared.
func InspectGuards(m Machine, buffers []*Buffer) ([]finding.Finding, error) {
	var findings []finding.Finding
	want, got := bytes.Repeat([]byte{fills[0].guard}, guardBytes), make([]byte, guardBytes)
	for _, b := range buffers {
		for _, guard := range []struct {
			where string
			start Address
		}{{"before its start", b.base}, {"past its end", b.Start() + Address(b.size)}} {
			if err := m.Read(got, guard.start); err != nil {
				return nil, err
			}
			if !bytes.Equal(got, want) {
				findings = append(findings, b.found(finding.WroteOutside, "bytes written %s while it was timed", guard.where))
			}
		}
	}
	return findings, nil
}

// Outputs reads the buffers that the kernel may write, in argument order.
func Outputs(m Machine, buffers []*Buffer) ([][]byte, error) {
	var all [][]byte
	for _, b := range buffers {
		if !b.isOutput() {
			continue
		}
		data := make([]byte, b.size)
		if err := m.Read(data, b.Start()); err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}
