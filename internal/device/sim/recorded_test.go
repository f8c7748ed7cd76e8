package sim_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/run"
	"attune/internal/tensor"
)

// recorded is a kernel of this project that ran on an H200: its PTX, and the SHA-256 of its outputs
// by shape and input distribution, as recorded in the ledger.
type recorded struct {
	Stage  string `json:"stage"`
	File   string `json:"file"`
	SHA256 string `json:"ptx_sha256"`
	Launch struct {
		Threads   int `json:"threads"`
		QueryRows int `json:"query_rows"`
		Shared    int `json:"dynamic_shared_bytes"`
	} `json:"launch"`
	Outputs map[string]string `json:"outputs"`
}

func readRecorded(t *testing.T) []recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/h200.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

var all = flag.Bool("all", false, "run the largest recorded problems too, as `make verify` does")

// TestRecordedOutputs compares whole kernels with an H200. The outputs of the simulator must have
// the same SHA-256: bit for bit, including the exponentials (ex2.approx) and the sums of the tensor
// cores.
func TestRecordedOutputs(t *testing.T) {
	t.Parallel()
	stages := map[string]bool{}
	for _, r := range readRecorded(t) {
		stages[r.Stage] = true
		text := unpack(t, r)
		for _, shape := range []string{"1x1x32x64", "1x8x128x64", "2x3x1x64", "2x3x31x64", "2x3x33x64", "2x3x127x64", "1x8x512x64"} {
			if r.Outputs[shape] == "" {
				t.Errorf("%s: no recorded output of %s", r.Stage, shape)
			}
		}
		for _, problem := range slices.Sorted(maps.Keys(r.Outputs)) {
			t.Run(r.Stage+" "+problem, func(t *testing.T) {
				t.Parallel()
				checkRecorded(t, r, text, problem)
			})
		}
	}
	if len(stages) != 3 {
		t.Errorf("the stages are %v", stages)
	}
}

func checkRecorded(t *testing.T, r recorded, text []byte, problem string) {
	name, distribution, _ := strings.Cut(problem, " ")
	shape, err := tensor.ParseShape(name)
	if err != nil {
		t.Fatal(err)
	}
	large := 1 << 17 // elements; larger problems take some seconds, and many with the checkers
	if testing.Short() {
		large = 1 << 15 // without 127 and 128 rows, which take five of six seconds
	}
	elements := shape.Rows() * shape.HeadDim
	if elements >= large && !*all {
		t.Skip("takes many seconds, and smaller problems run the same instructions; -all runs it")
	}
	options := tensor.Options{}
	for _, d := range []tensor.Distribution{tensor.Outliers, tensor.Peaked} {
		if d.String() == distribution {
			options.Distribution = d
		}
	}
	d := sim.Open(sim.Options{Checks: !testing.Short() && elements < large})
	outcome, err := d.Run(t.Context(), attentionJob(r, text, tensor.Draw(shape, 0, options)))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Findings) > 0 {
		t.Errorf("findings %v", outcome.Findings)
	}
	if sum := sha256.Sum256(outcome.Outputs[0]); hex.EncodeToString(sum[:]) != r.Outputs[problem] {
		t.Errorf("SHA-256 of the output is %x, on the H200 %s", sum, r.Outputs[problem])
	}
}

// unpack reads the PTX of a recorded kernel.
func unpack(t *testing.T, r recorded) []byte {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", r.File))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); fmt.Sprintf("%x", sum) != r.SHA256 {
		t.Fatalf("%s has another SHA-256 than recorded", r.File)
	}
	return text
}

// attentionJob launches a recorded kernel, with one block for each tile of query rows of each head.
// The arguments are those of that time: q, k, v, o, descale_q, descale_k, descale_v, queries, keys,
// causal, softmax_scale.
func attentionJob(r recorded, text []byte, in *tensor.Inputs) device.Job {
	floats := func(values []float32) device.Arg {
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return device.In(data)
	}
	shape := in.Shape
	causal := int32(0)
	if shape.Causal {
		causal = 1
	}
	return device.Job{
		Image: text, Entry: "sdpa", DynamicSharedBytes: r.Launch.Shared,
		Grid:  [3]int{(shape.SeqQ + r.Launch.QueryRows - 1) / r.Launch.QueryRows * shape.HeadCount(), 1, 1},
		Block: [3]int{r.Launch.Threads, 1, 1},
		Args: []device.Arg{
			device.In(in.Q.Codes), device.In(in.K.Codes), device.In(in.V.Codes), device.Out(2 * shape.Rows() * shape.HeadDim),
			floats(in.Q.Descale), floats(in.K.Descale), floats(in.V.Descale),
			device.Int32(int32(shape.SeqQ)), device.Int32(int32(shape.SeqK)), device.Int32(causal),
			device.Float32(float32(1 / math.Sqrt(float64(shape.HeadDim)))),
		},
	}
}

// TestLedger checks that the recorded outputs are those of the ledger for the same PTX on an H200.
func TestLedger(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../results/runs/*/run.json")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		record, err := run.Decode(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range readRecorded(t) {
			if record.Build == nil || record.Build.PTXHash != r.SHA256 || record.Facts == nil || record.Facts.Name != "NVIDIA H200" {
				continue
			}
			found += compareOutputs(t, file, r, record.Correctness)
		}
	}
	if found == 0 {
		t.Error("results/ is missing, or has no H200 run of the kernels in testdata/h200.json")
	}
}

// compareOutputs compares the outputs of a run with the recorded ones, and returns their number.
func compareOutputs(t *testing.T, file string, r recorded, outputs []run.Correctness) int {
	t.Helper()
	found := 0
	for _, c := range outputs {
		problem := c.Shape
		if c.Inputs != "" && c.Inputs != tensor.Normal.String() {
			problem += " " + c.Inputs
		}
		want := r.Outputs[problem]
		if want == "" || c.Seed != 0 || c.OutputSHA256 == "" {
			continue
		}
		found++
		if c.OutputSHA256 != want {
			t.Errorf("%s: %s of %s is %s, and %s here", file, problem, r.Stage, c.OutputSHA256, want)
		}
	}
	return found
}
