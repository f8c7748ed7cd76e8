package lab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/device/isolate"
	"attune/internal/gate"
	"attune/internal/run"
)

// serverArg makes this test binary serve the first GPU to its parent process, as attune does.
const serverArg = "lab-test-server"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != serverArg {
		os.Exit(m.Run())
	}
	if err := isolate.Serve(func() (device.Machine, error) { return cuda.Open(0) }); err != nil {
		os.Exit(1)
	}
}

// openGPU opens the first GPU in a process of its own.
func openGPU(ctx context.Context) (device.Device, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return isolate.Start(ctx, isolate.Options{Command: []string{program, serverArg}, Limit: time.Minute})
}

// honestShare is by how much a cheat with a time may be faster than honest attention. A mark that a
// launch cannot find, such as one in a register, makes a kernel honest.
const honestShare = 1.05

// No cheat gets a merge or a time on a GPU. Where all findings of the audit are allowed, none gets a
// merge, nor a time that honest attention does not have.
func TestCheatsOnGPU(t *testing.T) {
	d, err := openGPU(t.Context())
	if errors.Is(err, device.ErrNoDevice) {
		t.Skip(err) // it begins with "no GPU: "
	}
	if err != nil {
		t.Fatal(err)
	}
	facts := d.Facts()
	d.Close()
	take := func(t *testing.T, folder fs.FS, stage string) *run.Run {
		t.Helper()
		s := newSetupOf(t, folder, nil, t.TempDir())
		s.Device = GPU(facts, openGPU)
		r := s.request(stage)
		if r.Shapes, err = s.Kernel.Shapes("small,timed"); err != nil {
			t.Fatal(err)
		}
		r.Benchmark, err = s.Kernel.Shapes("timed")
		r.Seeds, r.NormalOnly, r.Samples = []uint64{0}, r.Shapes, 20
		if err != nil {
			t.Fatal(err)
		}
		return s.runOne(r)
	}
	folder := os.DirFS(cheatFolder)
	if got := take(t, folder, "honest"); got.Verdict != gate.Merge {
		t.Fatalf("honest attention is %s: %+v", got.Verdict, got.Reasons)
	}
	for _, c := range cheats {
		t.Run(c.stage, func(t *testing.T) {
			got := take(t, folder, c.stage)
			if got.Verdict != gate.Incorrect && got.Verdict != gate.Unknown || got.Headline != nil {
				t.Errorf("it is %s, with a speedup of %+v", got.Verdict, got.Speedup)
			}
			t.Log(got.Cause())
		})
		t.Run(c.stage+" allowed", func(t *testing.T) {
			got := take(t, allowAll{folder}, c.stage)
			if got.Verdict == gate.Merge || got.Speedup != nil && got.Speedup.Ratio > honestShare {
				t.Errorf("it is %s, with a speedup of %+v", got.Verdict, got.Speedup)
			}
			t.Logf("%s: %s", got.Verdict, got.Cause())
		})
	}
}
