package isolate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"attune/internal/device"
)

// profilerGrace is the time limit for ncu to write its report after the last job.
const profilerGrace = time.Minute

// Profiled is a device whose child runs under Nsight Compute. ncu wraps the child and not the
// parent, because it profiles the process that it starts.
type Profiled struct {
	*Device
	log string // ncu's log file
}

// StartProfiled starts a child under ncu with the given options. ncu writes its messages to log.
func StartProfiled(ctx context.Context, o Options, ncu string, options []string, log string) (*Profiled, error) {
	command := append([]string{ncu, "--log-file", log}, options...)
	o.Command = append(command, o.Command...)
	p := &Profiled{log: log}
	d, err := Start(ctx, o)
	if err != nil {
		if text := p.Log(); device.Classify(err) == device.KernelCrash && text != "" {
			err = fmt.Errorf("%w; ncu log: %s", err, text)
		}
		return nil, err
	}
	d.grace = profilerGrace
	p.Device = d
	return p, nil
}

// Log is the text of ncu's log file so far.
func (p *Profiled) Log() string {
	text, _ := os.ReadFile(p.log) // ncu makes the file with its first message
	return strings.TrimSpace(string(text))
}

// Finish ends the child, waits until ncu has written its report, and returns ncu's exit code.
func (p *Profiled) Finish() (int, error) {
	if err := p.Close(); err != nil {
		return 0, err
	}
	return p.cmd.ProcessState.ExitCode(), nil
}
