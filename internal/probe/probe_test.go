package probe

import (
	"context"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
)

// simulated is a card for the simulator.
var simulated = device.Facts{Arch: "sm_89", Multiprocessors: 2, L2Bytes: 4 << 20}

// The kernels are clean with all checkers, and write all that they shall.
func TestKernels(t *testing.T) {
	t.Parallel()
	simulator := simdevice.Open(simdevice.Options{Checks: true, Strict: true, Schedules: 1})
	jobs := map[string]device.Job{ex2Entry: ex2Job(simulated, 2)}
	for _, p := range products {
		jobs[p.name] = productJob(p, simulated, 2)
	}
	jobs[copyEntry], _ = memoryJob(copyEntry, simulated, 1, 1)
	jobs[readEntry], _ = memoryJob(readEntry, simulated, 1, 2)
	for name, job := range jobs {
		outcome, err := simulator.Run(context.Background(), job)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range append(outcome.Findings, outcome.Notes...) {
			t.Errorf("%s: %s: %s", name, f.Kind, f.Detail)
		}
	}
}
