package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"attune/internal/tensormap"
)

// Device runs jobs. Its methods are called one at a time.
type Device interface {
	Facts() Facts
	// Run runs a job under guard, as the package comment says.
	Run(ctx context.Context, job Job) (*Outcome, error)
	// Time measures jobs against each other, in turns. A device that has no clock to speak of returns ErrNoClock.
	Time(ctx context.Context, jobs []Job, plan Plan) ([]Series, error)
	Close() error
}

// ErrNoClock is returned by devices whose time says nothing about a GPU's.
var ErrNoClock = errors.New("this device measures no time")

// ErrNoDevice is what opening a device that is not there returns, wrapped with the reason.
var ErrNoDevice = errors.New("no GPU")

// Facts describes a device, for records.
type Facts struct {
	Kind             string `json:"kind"` // cuda or sim
	Name             string `json:"name"` // such as NVIDIA H200
	UUID             string `json:"uuid,omitempty"`
	Arch             string `json:"arch"`          // such as sm_90
	Multiprocessors  int    `json:"sms,omitempty"` //nolint:tagliatelle // the trade's own word
	MemoryBytes      int64  `json:"memory_bytes,omitempty"`
	L2Bytes          int64  `json:"l2_bytes,omitempty"`
	SharedBlockLimit int    `json:"shared_block_limit_bytes,omitempty"` // what a block may ask for
	ClockKHz         int    `json:"clock_khz,omitempty"`                // of the multiprocessors, at most
	MemoryClockKHz   int    `json:"memory_clock_khz,omitempty"`
	Driver           string `json:"driver,omitempty"` // CUDA version that the driver offers
}

// Job is one launch as data.
type Job struct {
	Image              []byte // cubin or PTX
	Entry              string // function in the image
	Grid               [3]int
	Block              [3]int
	Cluster            [3]int // blocks of a cluster; zeros for what the image says, or none
	DynamicSharedBytes int
	Args               []Arg
}

// Arg is one argument of a kernel: exactly one of its fields is set.
type Arg struct {
	Input  []byte // a buffer with these bytes, which the kernel must not change
	Output int    // a buffer of this many bytes, which the kernel must fill
	InOut  []byte // a buffer with these bytes, which the kernel may change
	Scalar []byte // a value of 4 or 8 bytes, little-endian

	TensorMap *TensorMap
}

// TensorMap describes the buffer of another argument to the tensor copies. It is a parameter of 128 bytes (CUtensorMap).
type TensorMap struct {
	Arg int `json:"arg"` // which argument the buffer is
	tensormap.Map
}

// In is a buffer that the kernel reads.
func In(data []byte) Arg { return Arg{Input: data} }

// Out is a buffer that the kernel fills.
func Out(bytes int) Arg { return Arg{Output: bytes} }

// Int32 is a scalar argument.
func Int32(v int32) Arg { return Arg{Scalar: binary.LittleEndian.AppendUint32(nil, uint32(v))} }

// Float32 is a scalar argument.
func Float32(v float32) Arg {
	return Arg{Scalar: binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))}
}

// Outcome is what a job gave.
type Outcome struct {
	Outputs  [][]byte // of the first of the two launches: the buffers that the kernel may write, in the order of their arguments
	Findings []Finding
	Loaded   Attributes
	Counters Counters // of one launch; nil where the device counts nothing by itself
}

// Counters are what one launch did, by the names that Nsight Compute has for it. What was not counted is not there.
type Counters map[string]float64

// Finding is something a kernel did that no right kernel does, whatever its answer.
type Finding struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// The kinds of finding that Run makes.
const (
	WroteOutside  = "wrote-outside"
	InputChanged  = "input-changed"
	Unwritten     = "unwritten"
	NotRepeatable = "not-repeatable"
)

// Attributes is what the driver says of a loaded function.
type Attributes struct {
	Registers         int `json:"registers"`
	StaticSharedBytes int `json:"static_shared_bytes"`
	LocalBytes        int `json:"local_bytes"`
	MaxThreads        int `json:"max_threads"`
}

// Check finds mistakes in a job that would be the caller's.
func (j *Job) Check() error {
	extents := append(j.Grid[:], j.Block[:]...)
	for i, name := range []string{"grid x", "grid y", "grid z", "block x", "block y", "block z"} {
		if extents[i] < 1 || extents[i] > math.MaxInt32 {
			return fmt.Errorf("job %s: %s is %d; want 1 to %d", j.Entry, name, extents[i], math.MaxInt32)
		}
	}
	if err := j.checkCluster(); err != nil {
		return fmt.Errorf("job %s: %w", j.Entry, err)
	}
	if j.DynamicSharedBytes < 0 || j.DynamicSharedBytes > math.MaxInt32 {
		return fmt.Errorf("job %s: %d bytes of dynamic shared memory; want 0 to %d", j.Entry, j.DynamicSharedBytes, math.MaxInt32)
	}
	for i, arg := range j.Args {
		if !arg.valid() {
			return fmt.Errorf("job %s: argument %d must be one of an input with bytes, an output of at least a byte, a buffer with bytes that may change, "+
				"a scalar of 4 or 8 bytes, a tensor map", j.Entry, i)
		}
		if arg.TensorMap == nil {
			continue
		}
		if err := j.checkMap(arg.TensorMap); err != nil {
			return fmt.Errorf("job %s: argument %d: a tensor map of argument %d: %w", j.Entry, i, arg.TensorMap.Arg, err)
		}
	}
	return nil
}

// mostCluster is how many blocks a cluster may have on any chip.
const mostCluster = 16

func (j *Job) checkCluster() error {
	if j.Cluster == [3]int{} {
		return nil
	}
	blocks := 1
	for i, n := range j.Cluster {
		if n < 1 || n > mostCluster {
			return fmt.Errorf("clusters of %v blocks; want 1 to %d in each direction, or zeros for none", j.Cluster, mostCluster)
		}
		if j.Grid[i]%n != 0 {
			return fmt.Errorf("a grid of %v blocks is not made of clusters of %v", j.Grid, j.Cluster)
		}
		blocks *= n
	}
	if blocks > mostCluster {
		return fmt.Errorf("clusters of %d blocks; want %d at most", blocks, mostCluster)
	}
	return nil
}

// checkMap looks at a tensor map and at the buffer that it is of. Where the buffer stands is no question: Bind keeps the alignment of an allocation.
func (j *Job) checkMap(m *TensorMap) error {
	if m.Arg < 0 || m.Arg >= len(j.Args) || !j.Args[m.Arg].IsBuffer() {
		return errors.New("that is no buffer")
	}
	if err := m.Check(); err != nil {
		return err
	}
	if have := j.Args[m.Arg].BufferBytes(); m.TensorBytes() > have {
		return fmt.Errorf("it reaches %d bytes far, and the buffer has %d", m.TensorBytes(), have)
	}
	return nil
}

// IsBuffer says whether an argument is the address of memory of its own.
func (a Arg) IsBuffer() bool { return a.Scalar == nil && a.TensorMap == nil }

// BufferBytes is the size of a buffer.
func (a Arg) BufferBytes() int { return max(len(a.Input), a.Output, len(a.InOut)) }

func (a Arg) valid() bool {
	given := 0
	for _, is := range []bool{a.Input != nil, a.Output != 0, a.InOut != nil, a.Scalar != nil, a.TensorMap != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return false
	}
	return !a.IsBuffer() && (a.Scalar == nil || len(a.Scalar) == 4 || len(a.Scalar) == 8) || a.IsBuffer() && a.BufferBytes() > 0
}
