package device

import (
	"encoding/binary"
	"math/bits"
)

// A kernel that remembers an earlier result must not be timed on inputs that it has seen. Before a
// timed replay, and between the launches of a check, the machine therefore rotates every input that
// has a rotation unit: element i becomes element i+shift. The values stay those of the problem's
// distribution, and launches see different inputs, as far as an input has several units. The shifts
// follow from a secret number of the plan, so that the host can rebuild the inputs of a launch and a
// kernel cannot predict them.

// Rotation identifies the rotation of one buffer copy: the secret of the plan, the count of
// rotations so far, and the step within one of them.
type Rotation struct {
	Secret, Count uint64
	Step          uint32
}

// The multipliers of Shift are odd constants with well mixed bits: the golden ratio, and two of the
// finaliser of SplitMix64.
const (
	mixCount = 0x9E3779B97F4A7C15
	mixStep  = 0xBF58476D1CE4E5B9
	mixIndex = 0x94D049BB133111EB
)

// mix is the rotation's random number for an argument. The kernel in package cuda computes the same.
func (r Rotation) mix(argument int) uint64 {
	z := r.Secret + r.Count*mixCount + uint64(r.Step)*mixStep + uint64(argument)*mixIndex
	z = (z ^ z>>30) * mixStep
	z = (z ^ z>>27) * mixIndex
	return z ^ z>>31
}

// Shift is how many units an argument's buffer of the given number of units is rotated.
func (r Rotation) Shift(argument, units int) int {
	shift, _ := bits.Mul64(r.mix(argument), uint64(units))
	return int(shift)
}

// Poison is the byte that fills an output of the rotation.
func (r Rotation) Poison(argument int) byte {
	if r.mix(argument)&1 != 0 {
		return 0xFF
	}
	return 0x7F
}

// Rotate returns the job with its inputs as the rotation leaves them.
func (j Job) Rotate(r Rotation) Job {
	args := make([]Arg, len(j.Args))
	for i, arg := range j.Args {
		if arg.Unit > 0 {
			shift := r.Shift(i, len(arg.Input)/arg.Unit) * arg.Unit
			rotated := make([]byte, 0, len(arg.Input))
			arg.Input = append(append(rotated, arg.Input[shift:]...), arg.Input[:shift]...)
		}
		args[i] = arg
	}
	j.Args = args
	return j
}

// RotationTable describes the buffers of one copy for the kernel that rotates them: for each buffer
// its address, the address of the original (0 for an output, which is poisoned), the number of
// units, the unit in bytes and the index of the argument. In-out buffers are restored, not rotated;
// scratch has no units.
func RotationTable(job Job, buffers, originals []*Buffer) []byte {
	var table []byte
	for i, b := range buffers {
		unit, source := b.unit(job), uint64(0)
		if b.role == input || b.role == inOut {
			source = uint64(originals[i].Start())
		}
		index := uint32(b.argument)
		if job.Args[b.argument].Unit == 0 && b.role != output {
			index = fixedIndex
		}
		table = binary.LittleEndian.AppendUint64(table, uint64(b.Start()))
		table = binary.LittleEndian.AppendUint64(table, source)
		units := b.size / unit
		if b.role == scratch {
			units = 0 // it stays as it is
		}
		table = binary.LittleEndian.AppendUint64(table, uint64(units))
		table = binary.LittleEndian.AppendUint32(table, uint32(unit))
		table = binary.LittleEndian.AppendUint32(table, index)
	}
	return table
}

// fixedIndex marks a buffer that is copied without a shift.
const fixedIndex = 1<<32 - 1

// RotationUnits are the units in which a buffer can be rotated, in bytes.
var RotationUnits = []int{16, 4, 1}

// unit is the rotation unit of an input, and for other buffers the largest that divides the size.
func (b *Buffer) unit(job Job) int {
	if unit := job.Args[b.argument].Unit; unit > 0 {
		return unit
	}
	for _, unit := range RotationUnits {
		if b.size%unit == 0 {
			return unit
		}
	}
	return 1
}

// IsInOut reports whether the kernel may change the buffer, which has contents before the launch.
func (b *Buffer) IsInOut() bool { return b.role == inOut }

// IsInput reports whether the kernel only reads the buffer.
func (b *Buffer) IsInput() bool { return b.role == input }

// Start is the address of the buffer behind its leading guard.
func (b *Buffer) Start() Address { return b.base + guardBytes }
