package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"attune/internal/coverage"
	"attune/internal/finding"
	"attune/internal/tensormap"
)

// Device runs jobs. Its methods are called one at a time.
type Device interface {
	Facts() Facts
	// Run runs a job under guard, as the package comment describes.
	Run(ctx context.Context, job Job) (*Outcome, error)
	// Time times jobs, interleaved. A device without a meaningful clock returns ErrNoClock.
	Time(ctx context.Context, jobs []Job, plan Plan) ([]Series, error)
	Close() error
}

// ErrNoClock is returned by devices whose time does not predict a GPU's time, such as the
// simulator.
var ErrNoClock = errors.New("this device measures no time")

// ErrNoDevice is returned, wrapped with the reason, when a device cannot be opened.
var ErrNoDevice = errors.New("no GPU")

// Facts describes a device, for records.
type Facts struct {
	Kind             string `json:"kind"` // cuda or sim
	Name             string `json:"name"` // such as NVIDIA H200
	UUID             string `json:"uuid,omitempty"`
	Arch             string `json:"arch"`          // such as sm_90
	Multiprocessors  int    `json:"sms,omitempty"` //nolint:tagliatelle // NVIDIA's term
	MemoryBytes      int64  `json:"memory_bytes,omitempty"`
	L2Bytes          int64  `json:"l2_bytes,omitempty"`
	SharedBlockLimit int    `json:"shared_block_limit_bytes,omitempty"` // opt-in maximum
	ClockKHz         int    `json:"clock_khz,omitempty"`                // maximum SM clock
	MemoryClockKHz   int    `json:"memory_clock_khz,omitempty"`
	Driver           string `json:"driver,omitempty"` // newest CUDA version it supports
}

// Job is one launch as data.
type Job struct {
	Image              []byte // cubin or PTX
	Entry              string // function in the image
	Grid               [3]int
	Block              [3]int
	Cluster            [3]int // blocks of a cluster; zeros: as the image declares, or none
	DynamicSharedBytes int
	Args               []Arg
	Relaunches         []Relaunch // after the launches on Args, by Run only
	Inputs             string     // the name of the contents of a relaunch
	Cooperative        bool       // all blocks are resident at once and may synchronise as a grid
	// Sample is how many blocks the simulator runs, with its checkers, if they do not communicate. The
	// outputs are then incomplete, and it returns none. 0 runs all blocks; other devices always do.
	Sample int
	// Unordered says that equal launches may differ in rounding: the kernel adds floating-point
	// numbers by atomic operations, or kernel.toml allows it.
	Unordered bool
}

// Arg is one argument of a kernel. Exactly one of its values is set.
type Arg struct {
	Input  []byte // a buffer with these bytes; the kernel must not change it
	Output int    // a buffer of this size in bytes; the kernel must fill it
	InOut  []byte // a buffer with these bytes; the kernel may change it
	Scalar []byte // a value of 1, 2, 4 or 8 bytes, little-endian
	// Scratch is a buffer of this size in bytes that is zero before the first launch. Later launches
	// find what earlier ones have left, as a caller's would; nothing compares it.
	Scratch int
	Zero    bool // of scratch: it is cleared before every launch

	TensorMap *TensorMap

	Name string // in kernel.toml, for messages; may be empty

	// Unit allows an input to be rotated by multiples of this many bytes while the job is timed: 16,
	// 4 or 1. 0 forbids it, for inputs whose order has a meaning to the problem.
	Unit int
}

// TensorMap describes the buffer of another argument for TMA copies. The kernel receives it as a
// parameter of 128 bytes (CUtensorMap).
type TensorMap struct {
	Arg int `json:"arg"` // index of the argument that is the buffer
	tensormap.Map
}

// In is a buffer that the kernel reads.
func In(data []byte) Arg { return Arg{Input: data} }

// Rotating is a buffer that the kernel reads and whose elements of unit bytes may be in any order.
func Rotating(data []byte, unit int) Arg { return Arg{Input: data, Unit: unit} }

// Out is a buffer that the kernel fills.
func Out(bytes int) Arg { return Arg{Output: bytes} }

// Int32 is a scalar argument.
func Int32(v int32) Arg { return Arg{Scalar: binary.LittleEndian.AppendUint32(nil, uint32(v))} }

// Float32 is a scalar argument.
func Float32(v float32) Arg {
	return Arg{Scalar: binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))}
}

// Outcome is the result of a job.
type Outcome struct {
	// Outputs are the buffers that the kernel may write, in argument order, after the first launch.
	Outputs    [][]byte
	Relaunched [][][]byte // the same after each relaunch of the job
	// Repeated are the outputs of further launches of an unordered job on the same inputs, where they
	// differ from the first. The caller compares them with its reference.
	Repeated  [][][]byte
	Findings  []finding.Finding
	Notes     []finding.Finding // what works on hardware, although PTX does not define it
	Loaded    Attributes
	Counters  Counters // of one launch; nil for a device that has no counters
	Schedules int      // of the simulator, that the job has run under; 0 on a GPU
	// Rescheduled are the results of schedules that differ from Outputs or Relaunched and that the
	// device does not call wrong: the caller compares them with a reference.
	Rescheduled []Rescheduled
	Covered     *coverage.Launches // instructions, in all launches; nil for a device that does not follow them
}

// Rescheduled is the result of a launch under another schedule than the first, or of its repetition.
type Rescheduled struct {
	Relaunch   int // which of the job's relaunches, from 1; 0 for the launch of the job itself
	Outputs    [][]byte
	Difference finding.Finding // from the first schedule, or from the launch that it repeats
	// Cause is a load that may miss a write, and did so in this launch; nil for none. If the result is
	// wrong, it is a defect.
	Cause *finding.Finding
}

// Counters are the hardware counters of one launch, by Nsight Compute's metric names. A metric that
// was not counted is absent.
type Counters map[string]float64

// Attributes are the driver's figures for a loaded function.
type Attributes struct {
	Registers         int `json:"registers"`
	StaticSharedBytes int `json:"static_shared_bytes"`
	LocalBytes        int `json:"local_bytes"`
	MaxThreads        int `json:"max_threads"`
}

// Check reports the first mistake of the caller in a job.
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
			return fmt.Errorf("job %s: argument %d must be exactly one of: a non-empty input, an output of at least 1 byte, "+
				"a non-empty in-out buffer, scratch of at least 1 byte, a scalar of 1, 2, 4 or 8 bytes, a tensor map; "+
				"only scratch is cleared before launches", j.Entry, i)
		}
		if arg.Unit != 0 && (!slices.Contains(RotationUnits, arg.Unit) || arg.Input == nil || len(arg.Input)%arg.Unit != 0) {
			return fmt.Errorf("job %s: argument %d cannot be rotated by units of %d bytes: that needs an input of whole units of 16, 4 or 1 bytes",
				j.Entry, i, arg.Unit)
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

// maxClusterBlocks is the non-portable cluster size limit of sm_90, the largest of any chip.
const maxClusterBlocks = 16

func (j *Job) checkCluster() error {
	if j.Cluster == [3]int{} {
		return nil
	}
	blocks := 1
	for i, n := range j.Cluster {
		if n < 1 || n > maxClusterBlocks {
			return fmt.Errorf("cluster %v; want 1 to %d blocks in each dimension, or zeros for none", j.Cluster, maxClusterBlocks)
		}
		if j.Grid[i]%n != 0 {
			return fmt.Errorf("grid %v is not a multiple of cluster %v", j.Grid, j.Cluster)
		}
		blocks *= n
	}
	if blocks > maxClusterBlocks {
		return fmt.Errorf("clusters of %d blocks; want at most %d", blocks, maxClusterBlocks)
	}
	return nil
}

// checkMap checks a tensor map and its buffer. It does not check the buffer's address, because Bind
// keeps the alignment of an allocation.
func (j *Job) checkMap(m *TensorMap) error {
	if m.Arg < 0 || m.Arg >= len(j.Args) || !j.Args[m.Arg].IsBuffer() {
		return errors.New("that argument is not a buffer")
	}
	if err := m.Check(); err != nil {
		return err
	}
	if have := j.Args[m.Arg].BufferBytes(); m.TensorBytes() > have {
		return fmt.Errorf("the map covers %d bytes, the buffer has %d", m.TensorBytes(), have)
	}
	return nil
}

// Variable identifies the argument at an index in findings and messages.
func (a Arg) Variable(index int) finding.Variable {
	return finding.Variable{Name: a.Name, Space: finding.Argument, Index: index}
}

// IsBuffer reports whether the argument is the address of a buffer of its own.
func (a Arg) IsBuffer() bool { return a.Scalar == nil && a.TensorMap == nil }

// BufferBytes is the size of the argument's buffer; 0 for an argument that is not a buffer.
func (a Arg) BufferBytes() int { return max(len(a.Input), a.Output, len(a.InOut), a.Scratch) }

func (a Arg) valid() bool {
	if a.Zero && a.Scratch == 0 {
		return false
	}
	set := 0
	for _, isSet := range []bool{a.Input != nil, a.Output != 0, a.InOut != nil, a.Scratch != 0, a.Scalar != nil, a.TensorMap != nil} {
		if isSet {
			set++
		}
	}
	switch {
	case set != 1:
		return false
	case a.IsBuffer():
		return a.BufferBytes() > 0
	case a.Scalar != nil:
		return slices.Contains([]int{1, 2, 4, 8}, len(a.Scalar))
	}
	return true
}
