package isolate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"attune/internal/device"
)

// SanitizerTools are the tools of NVIDIA's compute-sanitizer.
var SanitizerTools = []string{"memcheck", "racecheck", "initcheck", "synccheck"}

// sanitizerSawErrors is the exit code that compute-sanitizer is told to end with when it has found
// something.
const sanitizerSawErrors = 86

// mostBarriers is how many barriers in shared memory synccheck keeps track of. By itself it takes a
// number that a kernel with several of them in many blocks exceeds, and then ends the kernel.
const mostBarriers = "65536"

// Sanitized is a device whose child runs under compute-sanitizer.
type Sanitized struct {
	*Device
	tool   string
	folder string // of the log
}

// StartSanitized starts a child under a tool of compute-sanitizer. Its findings are there once the
// work is done (Findings).
func StartSanitized(ctx context.Context, o Options, tool string) (*Sanitized, error) {
	program, err := exec.LookPath("compute-sanitizer")
	if err != nil {
		return nil, fmt.Errorf("there is no compute-sanitizer in PATH; it comes with the CUDA toolkit")
	}
	folder, err := os.MkdirTemp("", "attune-sanitizer-")
	if err != nil {
		return nil, err
	}
	s := &Sanitized{tool: tool, folder: folder}
	options := []string{program, "--tool", tool, "--error-exitcode", fmt.Sprint(sanitizerSawErrors), "--log-file", s.log()}
	if tool == "synccheck" {
		options = append(options, "--num-cuda-barriers", mostBarriers)
	}
	o.Command = append(options, o.Command...)
	if s.Device, err = Start(ctx, o); err != nil {
		if log, _ := os.ReadFile(s.log()); device.Classify(err) == device.KernelCrash && len(log) > 0 {
			err = fmt.Errorf("%w; compute-sanitizer says: %s", err, strings.TrimSpace(string(log)))
		}
		os.RemoveAll(folder)
		return nil, err
	}
	return s, nil
}

func (s *Sanitized) log() string { return filepath.Join(s.folder, "log") }

// Findings ends the child and gives what the tool has found in it. The device is of no use
// afterwards. Of a child that was lost to a failure, which its caller knows, the tool may have
// nothing to say.
func (s *Sanitized) Findings() ([]device.Finding, error) {
	if err := s.Device.Close(); err != nil {
		return nil, err
	}
	code := s.cmd.ProcessState.ExitCode()
	if code == 0 || code != sanitizerSawErrors && s.lost {
		return nil, nil
	}
	log, err := os.ReadFile(s.log())
	if err != nil {
		return nil, fmt.Errorf("read what %s found: compute-sanitizer ended with code %d: %w", s.tool, code, err)
	}
	text := strings.TrimSpace(string(log))
	if code != sanitizerSawErrors {
		return nil, fmt.Errorf("compute-sanitizer ended with code %d: %s", code, text)
	}
	return []device.Finding{{Kind: s.tool, Text: text}}, nil
}

// Tool is the tool's name.
func (s *Sanitized) Tool() string { return s.tool }

// Close ends the child and drops the log.
func (s *Sanitized) Close() error {
	defer os.RemoveAll(s.folder)
	return s.Device.Close()
}
