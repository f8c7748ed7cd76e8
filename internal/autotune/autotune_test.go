package autotune

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/spec"
	"attune/kernels"
)

// recorded is a device that gives times of a rule of its own: forms of 64 rows take twice as long.
type recorded struct {
	t     *testing.T
	facts device.Facts
	stop  context.CancelFunc // called after some timings
	calls int
}

func (d *recorded) Facts() device.Facts { return d.facts }
func (d *recorded) Close() error        { return nil }

func (d *recorded) Run(_ context.Context, job device.Job) (*device.Outcome, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	times := make([]byte, job.Args[1].BufferBytes())
	for at := 0; at < len(times); at += 16 {
		binary.LittleEndian.PutUint64(times[at:], 3_000_000)
		binary.LittleEndian.PutUint64(times[at+8:], 1_500_000)
	}
	return &device.Outcome{Outputs: [][]byte{times}}, nil
}

func (d *recorded) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	var all []device.Series
	for _, job := range jobs {
		if err := job.Check(); err != nil {
			return nil, err
		}
		seconds := 1e-4
		// A card on which blocks of 64 rows are slow: the rule takes them for few tiles.
		if strings.HasPrefix(job.Entry, "warp") && job.DynamicSharedBytes == 40960 {
			seconds = 2e-4
		}
		all = append(all, device.Series{Seconds: []float64{seconds, seconds, 1.01 * seconds}})
	}
	if d.calls++; d.stop != nil && d.calls > 5 {
		d.stop()
		return nil, ctx.Err()
	}
	return all, nil
}

var l4 = device.Facts{Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58, L2Bytes: 4 << 20}

func newLab(t *testing.T, d device.Device) *Lab {
	return &Lab{
		Device: d, Facts: d.Facts(), Kernels: kernels.Portable(), Note: func(text string) { t.Log(text) },
		Progress: func(string, int, int, time.Duration) {},
	}
}

// headDim64 are small problems of one head dim.
func headDim64() []Problem {
	var some []Problem
	for _, p := range Problems(1) {
		if p.HeadDim == 64 && p.SeqQ > 16 && p.Batch*p.Heads*(p.SeqQ+p.SeqK)*p.HeadDim < 16<<20 {
			some = append(some, p)
		}
	}
	for i := range some {
		some[i].Held = i%2 == 1
	}
	return some
}

// A selection that was derived from recorded times changes what the libraries launch.
func TestTunedSelectionIsLaunched(t *testing.T) {
	problems := headDim64()
	m, err := newLab(t, &recorded{t: t, facts: l4}).Measure(context.Background(), Options{Problems: problems, Load: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Times) != len(problems) || m.Probe.StartGHz != 2 || m.Probe.Of("mma_e4m3_f32") == 0 {
		t.Fatalf("%d of %d problems, %+v", len(m.Times), len(problems), m.Probe)
	}
	tables := Derive(m, problems)
	if len(tables) != 1 || tables[0].Lines == 0 {
		t.Fatalf("%+v", tables)
	}
	few := form.Problem{Batch: 1, Heads: 8, KVHeads: 8, Queries: 300, Keys: 300, HeadDim: 64, WindowLeft: -1, WindowRight: -1}
	few.Q.Type, few.K.Type, few.V.Type, few.O.Type = "bf16", "bf16", "bf16", "bf16"
	before, after := planned(t, few), ""
	path := filepath.Join(t.TempDir(), "selection.json")
	file, err := m.File()
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	t.Setenv(form.SelectionVariable, path)
	if after = planned(t, few); before == after || after != "warp_d64" {
		t.Errorf("%s without and %s with the selection %+v", before, after, m.Choices)
	}
}

// planned is the form that the Go library launches on an L4.
func planned(t *testing.T, p form.Problem) string {
	t.Helper()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	table, err := form.NewTable(kernel.Selection("stage7"), kernels.SDPA(), nil, kernels.Portable(), l4)
	if err != nil {
		t.Fatal(err)
	}
	call, err := table.Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	return call.Form.Variant()
}

// What was measured before an interruption is kept.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	problems := headDim64()
	m, err := newLab(t, &recorded{t: t, facts: l4, stop: stop}).Measure(ctx, Options{Problems: problems})
	if err == nil || len(m.Times) != 3 { // two timings are the probe's
		t.Errorf("%v, %d times", err, len(m.Times))
	}
}

// The problems span what the rule depends on, and any first half of them too.
func TestProblems(t *testing.T) {
	all := Problems(1)
	held, first, causal := 0, map[string]int{}, 0
	for i, p := range all {
		if p.Held {
			held++
		}
		if p.Causal {
			causal++
		}
		if i < len(all)/2 {
			first[p.table()]++
		}
	}
	if len(all) < 100 || held < len(all)/6 || held > len(all)/3 || causal < 20 || len(first) != 7 {
		t.Errorf("%d problems, %d held out, %d causal; first half %v", len(all), held, causal, first)
	}
	for name, n := range first {
		if n < 2 {
			t.Errorf("%s: %d in the first half", name, n)
		}
	}
}

// Times that follow no rule give no table, in reasonable time.
func TestNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m, problems := &Measurement{}, Problems(1)[:110]
	for _, p := range problems {
		row := Time{Problem: p.String(), Held: p.Held, Rule: "a"}
		for _, name := range []string{"a", "b", "c", "d"} {
			row.Forms = append(row.Forms, FormTime{Variant: name, US: 1 + 0.2*random.Float64()})
		}
		m.Times = append(m.Times, row)
	}
	began := time.Now()
	for _, table := range Derive(m, problems) {
		t.Logf("%+v", table)
	}
	if spent := time.Since(began); spent > time.Minute {
		t.Errorf("the tables take %s", spent)
	}
}
