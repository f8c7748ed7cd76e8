package isolate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"attune/internal/device"
)

// profilerGrace is how long a profiler may take to write its report after the work is done.
const profilerGrace = time.Minute

// Profiled is a device whose child runs under Nsight Compute. The profiler wraps the child and not
// the parent: it sees the kernels of the process that it has started itself.
type Profiled struct {
	*Device
	log string // file of the profiler's own words
}

// StartProfiled starts a child under ncu with its options. What ncu has to say goes to the log
// file.
func StartProfiled(ctx context.Context, o Options, ncu string, options []string, log string) (*Profiled, error) {
	command := append([]string{ncu, "--log-file", log}, options...)
	o.Command = append(command, o.Command...)
	p := &Profiled{log: log}
	d, err := Start(ctx, o)
	if err != nil {
		if said := p.Log(); device.Classify(err) == device.KernelCrash && said != "" {
			err = fmt.Errorf("%w; ncu says: %s", err, said)
		}
		return nil, err
	}
	d.grace = profilerGrace
	p.Device = d
	return p, nil
}

// Log is what the profiler has said so far.
func (p *Profiled) Log() string {
	text, _ := os.ReadFile(p.log) // a profiler that has said nothing has no log
	return strings.TrimSpace(string(text))
}

// Finish ends the child, waits for the report and gives the profiler's exit code.
func (p *Profiled) Finish() (int, error) {
	if err := p.Close(); err != nil {
		return 0, err
	}
	return p.cmd.ProcessState.ExitCode(), nil
}
