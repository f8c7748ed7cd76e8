package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"attune/internal/device"
	"attune/internal/finding"
)

// SanitizerTools are the tools of NVIDIA's compute-sanitizer.
var SanitizerTools = []string{"memcheck", "racecheck", "initcheck", "synccheck"}

// findingsExitCode is the exit code that compute-sanitizer is configured to return for findings.
const findingsExitCode = 86

// maxBarriers is the number of shared-memory barriers that synccheck tracks. Its default is too low
// for a kernel with several barriers in many blocks: synccheck then ends the kernel.
const maxBarriers = "65536"

// Sanitized is a device whose child runs under compute-sanitizer.
type Sanitized struct {
	*Device
	tool   string
	folder string // with the log file
}

// StartSanitized starts a child under a tool of compute-sanitizer. Findings returns the tool's
// findings after the last job.
func StartSanitized(ctx context.Context, o Options, tool string) (*Sanitized, error) {
	program, err := exec.LookPath("compute-sanitizer")
	if err != nil {
		return nil, errors.New("compute-sanitizer is not in PATH; it is part of the CUDA toolkit")
	}
	folder, err := os.MkdirTemp("", "attune-sanitizer-")
	if err != nil {
		return nil, err
	}
	s := &Sanitized{tool: tool, folder: folder}
	options := []string{program, "--tool", tool, "--error-exitcode", fmt.Sprint(findingsExitCode), "--log-file", s.log()}
	if tool == "synccheck" {
		options = append(options, "--num-cuda-barriers", maxBarriers)
	}
	o.Command, o.sanitized = append(options, o.Command...), true
	o.LaunchLimit = 0 // the tool slows launches down
	if s.Device, err = Start(ctx, o); err != nil {
		if log, _ := os.ReadFile(s.log()); device.Classify(err) == device.KernelCrash && len(log) > 0 {
			err = fmt.Errorf("%w; compute-sanitizer log: %s", err, strings.TrimSpace(string(log)))
		}
		os.RemoveAll(folder)
		return nil, err
	}
	return s, nil
}

func (s *Sanitized) log() string { return filepath.Join(s.folder, "log") }

// Findings ends the child and returns the tool's findings. The device cannot be used afterwards. If
// a failure lost the child, which the caller knows already, the tool may have no findings.
func (s *Sanitized) Findings() ([]finding.Finding, error) {
	if err := s.Device.Close(); err != nil {
		return nil, err
	}
	code := s.cmd.ProcessState.ExitCode()
	if code == 0 || code != findingsExitCode && s.lost {
		return nil, nil
	}
	log, err := os.ReadFile(s.log())
	if err != nil {
		return nil, fmt.Errorf("read the findings of %s: compute-sanitizer ended with code %d: %w", s.tool, code, err)
	}
	text := strings.TrimSpace(string(log))
	if code != findingsExitCode {
		return nil, fmt.Errorf("compute-sanitizer ended with code %d: %s", code, text)
	}
	return []finding.Finding{finding.New(finding.Kind(s.tool), text)}, nil
}

// Tool is the name of the tool.
func (s *Sanitized) Tool() string { return s.tool }

// Close ends the child and deletes the log.
func (s *Sanitized) Close() error {
	defer os.RemoveAll(s.folder)
	return s.Device.Close()
}
