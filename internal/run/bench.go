package run

import (
	"encoding/json"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/toolchain"
)

// BenchSchemaVersion counts incompatible changes of a bench's document.
const BenchSchemaVersion = 1

// Bench is the record of variants timed beside other implementations.
type Bench struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id,omitempty"` // in the ledger; empty if it was not recorded
	Time          time.Time `json:"time"`
	Kernel        string    `json:"kernel"`
	Command       string    `json:"command"`           // that repeats it
	Requested     []string  `json:"asked_shapes"`      // shapes; the finished ones are in Checked
	Ended         string    `json:"ended,omitempty"`   // why shapes are missing
	Problem       *Problem  `json:"problem,omitempty"` // of a declared kernel

	Builds []toolchain.Record `json:"builds"` // of the variants, including those that selections chose
	GitSHA string             `json:"git_sha,omitempty"`
	Git    toolchain.Git      `json:"git"`
	Attune string             `json:"attune"` // version of the program

	Facts device.Facts `json:"facts"`
	Peers *peer.Facts  `json:"peers,omitempty"` // nil if none was started
	Seed  uint64       `json:"seed"`
	// SampleSeed is the seed of the rows that were checked where not all were; nil in old records.
	SampleSeed *uint64 `json:"sample_seed,omitempty"`

	Rounds int    `json:"rounds"` // samples of each implementation
	Blocks int    `json:"turns"`  // interleaved blocks of samples
	Timing string `json:"timing"` // method, in words

	// Simulated is what the simulator found on the variants beside the GPU, by variant.
	Simulated map[string]*Simulated `json:"simulated,omitempty"`
	NoSim     bool                  `json:"no_sim,omitempty"` // the simulator did not check them

	Ceilings *Ceilings      `json:"ceilings,omitempty"` // nil for a device without measured ceilings
	Checked  []CheckedShape `json:"answers"`            // the finished shapes
	Rows     []BenchRow     `json:"rows"`
	Best     []BestRow      `json:"best"`
	Skipped  []Skipped      `json:"left_out"`
	Random   *Random        `json:"random,omitempty"` // nil if the shapes were named

	Conditions // of the variants; peers are not monitored
}

// CheckedShape is how many rows of the outputs on a shape were checked.
type CheckedShape struct {
	Shape string `json:"shape"`
	oracle.Coverage
}

// BenchRow is one implementation on one shape. An implementation with a wrong output has no times.
type BenchRow struct {
	Shape     string `json:"shape"`
	ShapeName string `json:"shape_name,omitempty"` // label of a declared shape
	Name      string `json:"name"`
	Variant   string `json:"variant,omitempty"` // that the selection of this name chose
	Peer      bool   `json:"peer"`              // false for a variant or selection
	DType     string `json:"dtype"`

	P50US     *float64 `json:"p50_us"`
	P90US     *float64 `json:"p90_us"`
	P50LowUS  *float64 `json:"p50_low_us,omitempty"` // interval of the median, which covers what differs between processes
	P50HighUS *float64 `json:"p50_high_us,omitempty"`
	Processes int      `json:"processes,omitempty"`         // in which the samples were taken; 0 means 1, in old records
	Joules    float64  `json:"joules_per_launch,omitempty"` // 0 means not measured
	TFLOPS    *float64 `json:"tflops"`                      // nil if the work of a declared problem is unknown
	GBPerS    *float64 `json:"gb_per_s,omitempty"`          // of a declared problem
	MaxErr    *float64 `json:"max_err"`                     // against float64; nil without an output
	MeanErr   *float64 `json:"mean_err"`
	Wrong     string   `json:"wrong,omitempty"`
	Unchecked bool     `json:"unchecked,omitempty"` // Wrong is why the output could not be checked
	Launches  int      `json:"launches_per_sample,omitempty"`
	Copies    int      `json:"buffer_copies,omitempty"` // that the launches use in rotation

	Speedup *measure.Speedup `json:"speedup,omitempty"` // of our best variant over this implementation
	Shares  *Shares          `json:"shares,omitempty"`

	Seconds [][]float64 `json:"seconds,omitempty"` // per launch, one list per block; in the ledger in a file of their own
}

// ByProcess are the samples of each process. The blocks of a variant take turns in its processes.
func (r *BenchRow) ByProcess() [][]float64 {
	all := make([][]float64, max(1, min(r.Processes, len(r.Seconds))))
	for i, block := range r.Seconds {
		all[i%len(all)] = append(all[i%len(all)], block...)
	}
	return all
}

// BenchSamples are the raw times of one row.
type BenchSamples struct {
	Shape   string      `json:"shape"`
	Name    string      `json:"name"`
	Seconds [][]float64 `json:"seconds"`
}

// SplitSamples splits the record from its samples.
func (b *Bench) SplitSamples() (Bench, []BenchSamples) {
	record := *b
	record.Rows = []BenchRow{}
	samples := []BenchSamples{}
	for _, row := range b.Rows {
		if row.Seconds != nil {
			samples = append(samples, BenchSamples{row.Shape, row.Name, row.Seconds})
		}
		row.Seconds = nil
		record.Rows = append(record.Rows, row)
	}
	return record, samples
}

// DecodeBench reads bench.json.
func DecodeBench(text []byte) (*Bench, error) {
	b := &Bench{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("read a bench: %w", err)
	}
	if err := checkSchema("bench", b.ID, b.SchemaVersion, BenchSchemaVersion); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// BestRow compares our best variant with the best peer on one shape.
type BestRow struct {
	Shape   string          `json:"shape"`
	Variant string          `json:"variant"`
	Peer    string          `json:"peer"`
	Speedup measure.Speedup `json:"speedup"`
}

// Skipped is a requested peer that was skipped.
type Skipped struct {
	Name  string `json:"name"`
	Shape string `json:"shape,omitempty"` // empty if it was skipped on all shapes
	Why   string `json:"why"`
	Do    string `json:"do,omitempty"`
}

// Overall is the geometric mean of the best rows. There must be at least one.
func (b *Bench) Overall() measure.Speedup {
	var all []measure.Speedup
	for _, row := range b.Best {
		all = append(all, row.Speedup)
	}
	return geometricMean(all)
}

// Ceilings are the best rates that were measured on a device, with kernels that do nothing else.
type Ceilings struct {
	Device   string  `json:"device"`
	BF16     float64 `json:"bf16_gemm_tflops"`
	FP8      float64 `json:"fp8_gemm_tflops"`
	CopyTBps float64 `json:"copy_tb_per_s"` // bytes read plus bytes written
	Measured string  `json:"measured"`      // software versions of the measurement
}

// ceilings has measured devices only: no kernel reaches the figures of data sheets.
var ceilings = []Ceilings{
	{Device: "NVIDIA H200", BF16: 784, FP8: 1468, CopyTBps: 4.22, Measured: "driver 580, CUDA 13.0, PyTorch 2.11"},
}

// CeilingsOf are the ceilings of a device by name, or nil.
func CeilingsOf(name string) *Ceilings {
	for _, c := range ceilings {
		if c.Device == name {
			return &c
		}
	}
	return nil
}

// Shares are rates as fractions of the ceilings.
type Shares struct {
	BF16 float64 `json:"bf16_gemm"`
	FP8  float64 `json:"fp8_gemm"`
	Copy float64 `json:"copy"`
}

// Shares are those of a launch with this work, memory traffic and time.
func (c *Ceilings) Shares(flops, bytes, seconds float64) *Shares {
	return &Shares{BF16: flops / seconds / 1e12 / c.BF16, FP8: flops / seconds / 1e12 / c.FP8, Copy: bytes / seconds / 1e12 / c.CopyTBps}
}
