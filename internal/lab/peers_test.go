//go:build linux

package lab

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/peer"
	"attune/internal/run"
)

const doublingPeers = `
import torch

def sum(axes, inputs):
    assert axes == {"n": inputs["x"].numel()}
    return {"y": inputs["x"] + inputs["x"]}

def other(axes, inputs):
    return inputs["x"] + inputs["x"]

def wrong(axes, inputs):
    return inputs["x"] + 1

def raises(axes, inputs):
    raise ValueError("no luck")

def reads(axes, inputs):
    return inputs["x"] + inputs["x"].item()

def hangs(axes, inputs):
    import time
    time.sleep(60)
`

// benchFunctions benches the kernel that doubles beside Python functions, with the real helper and
// the fake PyTorch of package peer.
func benchFunctions(t *testing.T, names string) *run.Bench {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	modules, err := filepath.Abs("../peer/testdata/python/functions")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", modules)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	s := newDoubling(t, &doubling{})
	s.gpu.Facts.Name = "A fake GPU"
	s.Device = GPU(s.gpu.Facts, s.gpu.Open)
	file := filepath.Join(t.TempDir(), "peers.py")
	if err := os.WriteFile(file, []byte(doublingPeers), 0o600); err != nil {
		t.Fatal(err)
	}
	peers, err := peer.Functions(file+":"+strings.ReplaceAll(names, ",", ","+file+":"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	request := s.doublingRequest("plain")
	return s.benched(BenchRequest{
		Variants: request.Variants, Shapes: request.Shapes, Rounds: 4, Energy: true, Launches: 2, Peers: peers,
		StartPeers: func(ctx context.Context) (Peers, error) {
			return peer.Start(ctx, peer.Options{Limit: 5 * time.Second})
		},
	})
}

// Functions are timed beside the kernel. They have its number formats and do its work.
func TestBenchBesideFunctions(t *testing.T) {
	b := benchFunctions(t, "sum,other")
	expectSkipped(t, b)
	if got := b.Peers.Functions["sum"]; !strings.HasPrefix(got, "peers.py:sum sha256:") {
		t.Errorf("the record has the functions %v", b.Peers.Functions)
	}
	if len(b.Rows) != 6 || len(b.Best) != 2 {
		t.Fatalf("%s", brief(b))
	}
	for i, want := range []string{"plain", "sum", "other", "plain", "sum", "other"} {
		row := b.Rows[i]
		if row.Name != want || row.Peer != (want != "plain") || row.Wrong != "" || row.DType != "f32" || row.ShapeName != []string{"small", "large"}[i/3] ||
			row.P50US == nil || row.TFLOPS == nil || row.GBPerS == nil || *row.MaxErr != 0 || row.Peer != (row.Speedup != nil) {
			t.Errorf("%+v", row)
		}
		if work := *row.P50US * *row.GBPerS * 1e3; math.Abs(work/(8*[]float64{100, 1000}[i/3])-1) > 1e-9 {
			t.Errorf("%s does a work of %g bytes", row.Name, work)
		}
	}
}

// A function that fails is skipped with one line, and everything else is timed.
func TestBenchBesideFunctionsThatFail(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := benchFunctions(t, "wrong,raises,reads,sum,hangs")
	var reasons []string
	for _, s := range b.Skipped {
		reasons = append(reasons, s.Name+" "+s.Shape+": "+s.Why)
	}
	want := []string{
		"wrong n=100: its result is wrong: y: off by 98 at y[99]",
		"raises n=100: ValueError: no luck (line 15)",
		"reads n=100: cannot be captured as a CUDA graph: RuntimeError: CUDA error: operation not permitted when stream is capturing (line 18)",
		"hangs n=100: ",
		"wrong n=1000: its result is wrong: y: off by 998 at y[999]",
		"raises n=1000: ValueError: no luck (line 15)",
	}
	if len(reasons) != len(want) {
		t.Fatalf("%q", reasons)
	}
	for i := range want {
		if !strings.HasPrefix(reasons[i], want[i]) || strings.Contains(reasons[i], "\n") {
			t.Errorf("%q; want %q", reasons[i], want[i])
		}
	}
	var names []string
	for _, row := range b.Rows {
		if row.Wrong != "" || row.P50US == nil {
			t.Errorf("%+v", row)
		}
		names = append(names, row.Name)
	}
	if got := strings.Join(names, " "); got != "plain sum plain sum" {
		t.Errorf("rows of %s", got)
	}
}
