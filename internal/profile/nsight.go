package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/device/isolate"
)

// ErrNoProfiler is returned by Find if there is no ncu.
var ErrNoProfiler = errors.New("there is no ncu in PATH, in /usr/local/cuda/bin or under /opt/nvidia/nsight-compute; " +
	"install the CUDA toolkit or the package nsight-compute")

// ErrNoPermission is returned if the user may not read the GPU's counters.
var ErrNoPermission = errors.New("the driver restricts its counters to administrators (ERR_NVGPUCTRPERM); run as root, load the driver's module with " +
	"NVreg_RestrictProfilingToAdminUsers=0, or start the container with --cap-add=SYS_ADMIN")

// places are the paths of ncu outside PATH. Of several matches of a pattern the last has
// precedence.
var places = []string{"/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"}

// Find finds ncu.
func Find() (string, error) {
	if path, err := exec.LookPath("ncu"); err == nil {
		return path, nil
	}
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern) // fails only for an invalid pattern
		slices.Sort(found)
		for _, path := range slices.Backward(found) {
			if _, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", ErrNoProfiler
}

// Nsight runs Nsight Compute around a child process that runs kernels.
type Nsight struct {
	Program string          // ncu, from Find
	Child   isolate.Options // of the child without ncu
	Arch    string          // of the device
}

// Capture has the counters of one launch.
type Capture struct {
	Counters device.Counters
	Unknown  []string // metrics that this ncu does not know on this chip and that a figure needs
}

// maxTries limits the repetitions of a capture without the metrics that turned out to be unknown.
const maxTries = 8

// Capture runs a job in a child under ncu and counts its second launch, because the first one
// includes one-time warm-up. ncu writes its report, which Nsight Compute's window can open, to a
// file whose name ends in .ncu-rep.
func (n *Nsight) Capture(ctx context.Context, job device.Job, report string) (*Capture, error) {
	c := &Capture{}
	metrics := requestedMetrics(n.Arch)
	if known := n.query(ctx); known != nil {
		metrics, c.Unknown = known.split(metrics)
	}
	for range maxTries {
		err := n.record(ctx, job, report, metrics)
		var unknown unknownMetrics
		if errors.As(err, &unknown) {
			known, others := unknown.split(metrics)
			if len(others) > 0 {
				metrics, c.Unknown = known, append(c.Unknown, others...)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		c.Unknown = needed(metrics, c.Unknown)
		c.Counters, err = n.read(ctx, report)
		return c, err
	}
	return nil, fmt.Errorf("ncu does not know the requested metrics, at least these %d: %s", len(c.Unknown), strings.Join(c.Unknown, ", "))
}

// needed returns the unknown metrics without which a figure is incomplete: none of the figure's
// alternatives consists of known metrics.
func needed(known, unknown []string) []string {
	var all []string
	for _, m := range Metrics {
		complete := slices.ContainsFunc(m.from, func(names []string) bool {
			return !slices.ContainsFunc(names, func(name string) bool {
				return !slices.Contains(known, name) && !strings.HasPrefix(name, sourcePrefix)
			})
		})
		for _, name := range slices.Concat(m.from...) {
			if !complete && slices.Contains(unknown, name) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// knownMetrics are the names that ncu lists for a chip, without suffixes such as ".sum".
type knownMetrics map[string]bool

// minMetrics is the minimum of a plausible list. A chip has thousands of metrics.
const minMetrics = 100

// query lists the metrics that ncu knows on this machine. It returns nil if ncu gives no list;
// Capture then finds the unknown metrics by trial.
func (n *Nsight) query(ctx context.Context) knownMetrics {
	cmd := exec.CommandContext(ctx, n.Program, "--query-metrics")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.Output()
	if err != nil {
		return nil
	}
	return parseMetrics(text)
}

// parseMetrics parses the output of `ncu --query-metrics`: headings, and a line for each metric
// that begins with its name.
func parseMetrics(text []byte) knownMetrics {
	known := knownMetrics{}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) > 1 && bytes.Contains(fields[0], []byte("__")) {
			name, _, _ := strings.Cut(string(fields[0]), ".")
			known[name] = true
		}
	}
	if len(known) < minMetrics || !known["gpu__time_duration"] { // a metric that every chip has
		return nil
	}
	return known
}

// split separates listed from unlisted metrics. Metrics of the launch configuration are known too;
// ncu does not list them.
func (k knownMetrics) split(metrics []string) (known, unknown []string) {
	for _, metric := range metrics {
		name, _, _ := strings.Cut(metric, ".")
		if k[name] || strings.HasPrefix(name, "launch__") {
			known = append(known, metric)
		} else {
			unknown = append(unknown, metric)
		}
	}
	return known, unknown
}

// record runs the job under ncu, which writes the report.
func (n *Nsight) record(ctx context.Context, job device.Job, report string, metrics []string) error {
	folder, err := os.MkdirTemp("", "attune-profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	options := []string{
		"--set", "full", "--import-source", "no", "--metrics", strings.Join(metrics, ","),
		"--clock-control", "none", // the ceilings of the roofline were measured without it too
		"--kernel-name", job.Entry, "--launch-skip", "1", "--launch-count", "1",
		"--force-overwrite", "--export", strings.TrimSuffix(report, ".ncu-rep"), // ncu adds the suffix
	}
	p, err := isolate.StartProfiled(ctx, n.Child, n.Program, options, filepath.Join(folder, "log"))
	if err != nil {
		return diagnose(err.Error(), err)
	}
	_, runErr := p.Run(ctx, job)
	code, err := p.Finish()
	if err := errors.Join(ctx.Err(), err); err != nil {
		return err
	}
	if _, err := os.Stat(report); err == nil && runErr == nil {
		return nil
	}
	if runErr == nil {
		runErr = fmt.Errorf("ncu wrote no report and ended with code %d", code)
	}
	return diagnose(p.Log(), runErr)
}

// read reads the counters of the last launch in a report.
func (n *Nsight) read(ctx context.Context, report string) (device.Counters, error) {
	var messages bytes.Buffer
	cmd := exec.CommandContext(ctx, n.Program, "--import", report, "--csv", "--page", "raw", "--print-units", "base")
	cmd.Env = append(os.Environ(), "LC_ALL=C") // decimal points and thousands commas
	cmd.Stderr = &messages
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read %s: ncu: %w: %s", report, err, firstError(messages.String()+string(text)))
	}
	launches, err := ParseCSV(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, firstError(messages.String()+string(text)))
	}
	if len(launches) == 0 {
		return nil, fmt.Errorf("read %s: it has no launch", report)
	}
	return launches[len(launches)-1].Counters, nil
}

// unknownMetrics is the error of an ncu that does not know some metrics. A name may lack its
// suffix.
type unknownMetrics []string

func (e unknownMetrics) Error() string {
	return "ncu does not know the metrics " + strings.Join(e, ", ")
}

// split separates known from unknown metrics.
func (e unknownMetrics) split(metrics []string) (known, unknown []string) {
	for _, metric := range metrics {
		matches := func(name string) bool { return metric == name || strings.HasPrefix(metric, name+".") }
		if slices.ContainsFunc(e, matches) {
			unknown = append(unknown, metric)
		} else {
			known = append(known, metric)
		}
	}
	return known, unknown
}

// unknownMetric matches the name of an unknown metric in ncu's log: NAME, or
// regex:^NAME\.(sum|min|...)$ for a name without suffix.
var unknownMetric = regexp.MustCompile(`Failed to find metric (?:regex:\^)?([A-Za-z0-9_.\\]+)`)

// diagnose returns the error that ncu's log describes, or otherwise the given error with the log's
// first error.
func diagnose(log string, otherwise error) error {
	if strings.Contains(log, "ERR_NVGPUCTRPERM") {
		return ErrNoPermission
	}
	var unknown unknownMetrics
	for _, match := range unknownMetric.FindAllStringSubmatch(log, -1) {
		unknown = append(unknown, strings.TrimRight(strings.ReplaceAll(match[1], `\`, ""), "."))
	}
	if len(unknown) > 0 {
		return unknown
	}
	if text := firstError(log); text != "" && !strings.Contains(otherwise.Error(), text) {
		return fmt.Errorf("%w; ncu log: %s", otherwise, text)
	}
	return otherwise
}

// firstError is the first error line of ncu's log without its mark, or the last line if there is
// none.
func firstError(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, mark := range []string{"==ERROR==", "==WARNING== No kernels"} {
		for _, line := range lines {
			if strings.HasPrefix(line, mark) {
				_, text, _ := strings.Cut(line[2:], "== ")
				return text
			}
		}
	}
	return lines[len(lines)-1]
}
