package run

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/toolchain"
)

// BenchSchemaVersion counts the changes of a bench's document that a reader must know of.
const BenchSchemaVersion = 1

// Bench is variants timed beside other implementations.
type Bench struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id,omitempty"` // in the ledger; empty where it is in none
	Time          time.Time `json:"time"`
	Kernel        string    `json:"kernel"`
	Command       string    `json:"command"`         // that does it again
	Asked         []string  `json:"asked_shapes"`    // of which Answers has the finished ones
	Ended         string    `json:"ended,omitempty"` // why it ended before it had all of them

	Builds []toolchain.Record `json:"builds"` // of the variants, those that selections chose included
	GitSHA string             `json:"git_sha,omitempty"`
	Git    toolchain.Git      `json:"git"`
	Attune string             `json:"attune"` // the program's own version

	Facts device.Facts `json:"facts"`
	Peers *peer.Facts  `json:"peers,omitempty"` // nil where none could be timed
	Seed  uint64       `json:"seed"`

	Rounds int    `json:"rounds"` // samples of each
	Turns  int    `json:"turns"`  // in which they were taken
	Timing string `json:"timing"` // how, in words

	Ceilings *Ceilings     `json:"ceilings,omitempty"` // nil for devices on which nobody has measured them
	Answers  []BenchAnswer `json:"answers"`            // of each shape that was finished
	Rows     []BenchRow    `json:"rows"`
	Best     []BestRow     `json:"best"`
	LeftOut  []LeftOut     `json:"left_out"`

	Circumstances // of the variants; nobody watches the peers
}

// BenchAnswer is how much of the answers to a shape was looked at.
type BenchAnswer struct {
	Shape string `json:"shape"`
	oracle.Checked
}

// BenchRow is one implementation on one shape. What gave a wrong answer was not timed.
type BenchRow struct {
	Shape string `json:"shape"`
	Name  string `json:"name"`
	Taken string `json:"variant,omitempty"` // the variant that a selection has chosen here
	Peer  bool   `json:"peer"`              // and no variant of ours
	DType string `json:"dtype"`

	P50US    *float64 `json:"p50_us"`
	P90US    *float64 `json:"p90_us"`
	TFLOPS   *float64 `json:"tflops"`
	MaxErr   *float64 `json:"max_err"` // against float64; nil where there is no answer
	MeanErr  *float64 `json:"mean_err"`
	Wrong    string   `json:"wrong,omitempty"`
	Launches int      `json:"launches_per_sample,omitempty"`
	Copies   int      `json:"buffer_copies,omitempty"` // which they took in turns

	Speedup *measure.Speedup `json:"speedup,omitempty"` // of our best variant against this one
	Shares  *Shares          `json:"shares,omitempty"`

	Seconds [][]float64 `json:"seconds,omitempty"` // a launch; one list a turn. In the ledger they have a file of their own
}

// BenchSamples is the raw timing of one row.
type BenchSamples struct {
	Shape   string      `json:"shape"`
	Name    string      `json:"name"`
	Seconds [][]float64 `json:"seconds"`
}

// Apart gives the record without its samples, and the samples.
func (b *Bench) Apart() (Bench, []BenchSamples) {
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

// DecodeBench reads the record of a bench.
func DecodeBench(text []byte) (*Bench, error) {
	b := &Bench{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, fmt.Errorf("read a bench: %w", err)
	}
	if err := checkSchema("bench", b.ID, b.SchemaVersion, BenchSchemaVersion); err != nil {
		return nil, err
	}
	return b, nil
}

// BestRow is our best variant against the best peer on one shape.
type BestRow struct {
	Shape   string          `json:"shape"`
	Variant string          `json:"variant"`
	Peer    string          `json:"peer"`
	Speedup measure.Speedup `json:"speedup"`
}

// LeftOut is what was asked for and not timed.
type LeftOut struct {
	Name  string `json:"name"`
	Shape string `json:"shape,omitempty"` // empty where it is missing on all
	Why   string `json:"why"`
	Do    string `json:"do,omitempty"`
}

// Overall is the geometric mean, over the shapes, of the best variant against the best peer. There must be a shape that has both.
func (b *Bench) Overall() measure.Speedup {
	var ratio, low, high float64
	for _, row := range b.Best {
		ratio, low, high = ratio+math.Log(row.Speedup.Ratio), low+math.Log(row.Speedup.Low), high+math.Log(row.Speedup.High)
	}
	n := float64(len(b.Best))
	return measure.Speedup{Ratio: math.Exp(ratio / n), Low: math.Exp(low / n), High: math.Exp(high / n)}
}

// Ceilings are what a device was measured to reach at best, with kernels that do nothing else.
type Ceilings struct {
	Device   string  `json:"device"`
	BF16     float64 `json:"bf16_gemm_tflops"`
	FP8      float64 `json:"fp8_gemm_tflops"`
	CopyTBps float64 `json:"copy_tb_per_s"` // read and written bytes together
	Measured string  `json:"measured"`      // with what
}

// ceilings that were measured. A device that is not here has none: figures of data sheets are not reached by anything.
var ceilings = []Ceilings{
	{Device: "NVIDIA H200", BF16: 784, FP8: 1468, CopyTBps: 4.22, Measured: "driver 580, CUDA 13.0, PyTorch 2.11"},
}

// CeilingsOf are those of a device by its name, or nil.
func CeilingsOf(name string) *Ceilings {
	for _, c := range ceilings {
		if c.Device == name {
			return &c
		}
	}
	return nil
}

// Shares are how much of each ceiling something reaches: 1 is all of it.
type Shares struct {
	BF16 float64 `json:"bf16_gemm"`
	FP8  float64 `json:"fp8_gemm"`
	Copy float64 `json:"copy"`
}

// Shares of what does so much work and must move so many bytes in so many seconds.
func (c *Ceilings) Shares(flops, bytes, seconds float64) *Shares {
	return &Shares{BF16: flops / seconds / 1e12 / c.BF16, FP8: flops / seconds / 1e12 / c.FP8, Copy: bytes / seconds / 1e12 / c.CopyTBps}
}
