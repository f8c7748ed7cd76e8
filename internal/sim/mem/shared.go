package mem

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"attune/internal/sim/order"
)

// Direction is what an access does.
type Direction uint8

// The directions. An Update is an atomic operation: it reads and writes.
const (
	Read Direction = iota
	Write
	Update
)

// String returns the verb of the direction.
func (d Direction) String() string { return [...]string{"reads", "writes", "updates"}[d] }

// Marks of a byte of memory.
const (
	Unwritten byte = iota // the byte was never written
	Written
	Barrier // the byte belongs to a live mbarrier
	Gap     // the byte lies between variables

	// Marks of a variable of a module, or of a carried buffer, that outlives a launch. Written is a
	// byte that the present launch has written.
	Initial // no launch has written the byte
	Kept    // an earlier launch has written the byte, or the buffer is carried
	Noted   // the byte of a carried buffer is kept, and a read of it was reported
)

// Poison fills memory that was never written, and the target of an asynchronous copy until a thread
// waits for the copy. As f16 or f32 it is NaN.
const Poison = 0xFF

// Fill sets all bytes to a value. Buffers may have hundreds of megabytes, so it copies what it has
// set already.
func Fill(data []byte, value byte) {
	first := min(len(data), 64)
	for i := range first {
		data[i] = value
	}
	for n := first; n < len(data); n += copy(data[n:], data[:min(n, 4096)]) {
	}
}

// IsPlain reports whether bytes are neither part of a barrier nor of a gap.
func IsPlain(marks []byte) bool {
	for len(marks) >= 8 {
		if binary.LittleEndian.Uint64(marks)&0xFEFEFEFEFEFEFEFE != 0 {
			return false
		}
		marks = marks[8:]
	}
	for _, m := range marks {
		if m > Written {
			return false
		}
	}
	return true
}

// AllWritten16 reports whether the first 16 bytes are all plain and written.
func AllWritten16(marks []byte) bool {
	const all = 0x0101010101010101 * uint64(Written)
	return binary.LittleEndian.Uint64(marks) == all && binary.LittleEndian.Uint64(marks[8:]) == all
}

// IsWritten reports whether bytes, a multiple of 16, are all plain and written.
func IsWritten(marks []byte) bool {
	for ; len(marks) >= 16; marks = marks[16:] {
		if !AllWritten16(marks) {
			return false
		}
	}
	return len(marks) == 0
}

// MarkWritten marks bytes as written that are not, or that were written before the launch.
func MarkWritten(marks []byte) {
	for i, m := range marks {
		if m == Unwritten || m >= Initial {
			marks[i] = Written
		}
	}
}

// Shared is the shared memory of a block.
type Shared struct {
	Data   []byte
	Marks  []byte
	Shadow order.Shadow
	First  uint64 // address of Data[0]
}

// Reset makes the memory unwritten, with the variables of a layout and a number of bytes of dynamic
// memory after them. first is the address of its first byte.
func (s *Shared) Reset(l *Layout, dynamic int, first uint64, checks bool) {
	n := l.DynamicAt() + dynamic
	if cap(s.Data) < n {
		s.Data, s.Marks = make([]byte, n), make([]byte, n)
	}
	s.Data, s.Marks = s.Data[:n], s.Marks[:n]
	Fill(s.Data, Poison)
	clear(s.Marks)
	l.markGaps(s.Marks)
	s.First = first
	if checks {
		s.Shadow.Reset(n)
	}
}

// Holds reports whether a range of addresses lies inside.
func (s *Shared) Holds(address uint64, size int) bool {
	at := address - s.First
	return address >= s.First && at <= uint64(len(s.Data)) && at+uint64(size) <= uint64(len(s.Data))
}

// DescribeOutside describes where an address lies that is not inside.
func (s *Shared) DescribeOutside(address uint64, size int) string {
	end := s.First + uint64(len(s.Data))
	switch {
	case address < s.First:
		return fmt.Sprintf("%d bytes before its start", s.First-address)
	case address-end > 1<<32:
		return "which is not an address of shared memory"
	}
	return fmt.Sprintf("which ends at %#x: %d bytes past the end of %d", end, address+uint64(size)-end, len(s.Data))
}

// Local is the local memory of one thread. It grows with the depth of its calls.
type Local struct {
	Data, Marks []byte
}

// Grow makes the memory at least n bytes long.
func (l *Local) Grow(n int) {
	if more := n - len(l.Data); more > 0 {
		l.Data = append(l.Data, bytes.Repeat([]byte{Poison}, more)...)
		l.Marks = append(l.Marks, make([]byte, more)...)
	}
}

// Forget makes a range unwritten.
func (l *Local) Forget(first, end int) {
	first, end = min(first, len(l.Data)), min(end, len(l.Data))
	Fill(l.Data[first:end], Poison)
	clear(l.Marks[first:end])
}
