package predict

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"testing"

	"attune/internal/arch"
)

var update = flag.Bool("update", false, "fit the model to the points of calibration.json, and write it there")

// TestFit fits the model to the recorded points, and compares it and its errors on the held-out ones
// with what every output prints.
func TestFit(t *testing.T) {
	c := Recorded()
	model, residuals := c.Fit()
	fitted, held := c.split()
	t.Logf("%+v; fitted %+v, held out %+v", model, c.summary(model, fitted), residuals)
	if testing.Verbose() {
		for _, p := range c.Points {
			fmt.Printf("%5.2f held %-5v %s %s k%d b%d %.1f us limit %s\n", math.Exp(c.error(model, p)), c.heldOut(p), p.Variant, p.Shape, p.Repeat, p.Resident, p.US, model.timeWith(p.Work, c.chip(), p.Resident).Limit)
		}
	}
	if *update {
		c.Model, c.Residuals = model, residuals
		if err := os.WriteFile("calibration.json", write(t, c), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(held)*2 < len(fitted)-len(held)/2 {
		t.Errorf("%d points are held out of %d", len(held), len(c.Points))
	}
	same := func(got, want float64) bool { return math.Abs(got-want) <= 0.01*math.Abs(want) }
	for i, constant := range model.constants() {
		if !same(*constant, *c.Model.constants()[i]) {
			t.Errorf("constant %d is %v, recorded %v", i, *constant, *c.Model.constants()[i])
		}
	}
	if residuals.Points != c.Residuals.Points || !same(residuals.Median, c.Residuals.Median) || !same(residuals.Worst, c.Residuals.Worst) {
		t.Errorf("residuals %+v, recorded %+v", residuals, c.Residuals)
	}
}

// write has a point in each line.
func write(t *testing.T, c *Calibration) []byte {
	t.Helper()
	head := *c
	head.Points = nil
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	out := bytes.NewBuffer(bytes.TrimSuffix(text, []byte(`"points":null}`)))
	out.WriteString(`"points":[`)
	for i, p := range c.Points {
		line, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n")
		out.Write(line)
	}
	out.WriteString("\n]}\n")
	return out.Bytes()
}

func TestTime(t *testing.T) {
	l4, err := arch.ChipNamed("L4")
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Kappa: 0.5, Math: 1, MathBeside: 0.25, Power: 1, Barrier: 10, Spill: 1, Tail: 0.5, Launch: 2, L2Bytes: 16}
	// A block of 8 warps: 4000 cycles of the tensor cores, 1000 issue slots, 1000 of shared memory. One of
	// its size is resident, so that half of the other pipes is not hidden.
	w := Work{Blocks: 58, Warps: 8, Registers: 255, Products: Products{F16F32: 4000 * 1024}, Instructions: 4000, Shared128: 1000}
	got := m.Time(w, l4)
	if got.Cycles != 5000 || got.Limit != "tensor" || got.Resident != 1 || got.Waves != 1 || !near(got.Microseconds, 5000/2040.+2) {
		t.Errorf("one wave: %+v", got)
	}
	w.XU = 100 // products wait for all of its 200 cycles
	if got := m.Time(w, l4); got.Cycles != 5200 {
		t.Errorf("exponentials: %+v", got)
	}
	w.Instructions = 24000 // the issue slots are the busiest: a quarter of the 200
	if got := m.Time(w, l4); got.Cycles != 6000+0.5*(4000+1000)+0.25*200 || got.Limit != "issue" {
		t.Errorf("exponentials beside another pipe: %+v", got)
	}
	w.XU, w.Instructions = 0, 4000
	w.Barriers, w.Spills = 20, 50 // no other block uses the cycles
	if got := m.Time(w, l4); got.Cycles != 5250 {
		t.Errorf("barriers and spills: %+v", got)
	}
	w.Barriers, w.Spills = 0, 0
	w.Blocks = 59 // one more block is one more wave
	if got := m.Time(w, l4); got.Cycles != 10000 {
		t.Errorf("two waves: %+v", got)
	}
	w.Uneven = true
	if got := m.Time(w, l4); !near(got.Cycles, (59./58+0.5)*5000) {
		t.Errorf("uneven blocks: %+v", got)
	}
	w.Blocks, w.Uneven, w.Registers = 10, false, 64 // two blocks would be resident, and there is one
	if got := m.Time(w, l4); got.Cycles != 5000 || got.Resident != 4 {
		t.Errorf("a part of a wave: %+v", got)
	}
	w.Buffers = 1e9 // 2.5 bytes a clock
	if got := m.Time(w, l4); got.Limit != "dram" || !near(got.Cycles, 1e9/(300e9/2.04e9)+0.5*(4000+1000+1000)) {
		t.Errorf("%+v", got) // ten multiprocessors have all of DRAM
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Points: 3, Median: 0.081, Worst: 0.25, On: "H200"}
	if got, want := s.String(), "error on 3 held-out times of an H200: median 8 %, worst 25 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&Calibration{}).summary(Model{}, nil); got.Points != 0 || got.Worst != 0 {
		t.Errorf("%+v of no points", got)
	}
}

func TestClaimed(t *testing.T) {
	if got := Claimed("stage2", "1x8x512x64", "L4"); got != 656.38 {
		t.Errorf("stage2: %v", got)
	}
	if got := Claimed("stage2", "1x8x512x64", "A100") + Claimed("stage6", "1x8x512x64", "L4") + Claimed("stage2", "1x8x1024x64", "L4"); got != 0 {
		t.Errorf("a claim of another chip, stage or shape: %v", got)
	}
}
