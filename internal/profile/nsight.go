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

// ErrNoProfiler is returned where there is no ncu.
var ErrNoProfiler = errors.New("there is no ncu in PATH, in /usr/local/cuda/bin or under /opt/nvidia/nsight-compute; " +
	"it comes with the CUDA toolkit and as the package nsight-compute")

// ErrNoPermission is returned where the driver gives the counters to others only.
var ErrNoPermission = errors.New("the driver gives its counters to administrators only (ERR_NVGPUCTRPERM); run as root, load the driver's module with " +
	"NVreg_RestrictProfilingToAdminUsers=0, or start the container with --cap-add=SYS_ADMIN")

// places are where ncu lies when it is not in PATH, the last of each pattern first.
var places = []string{"/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"}

// Find finds ncu.
func Find() (string, error) {
	if path, err := exec.LookPath("ncu"); err == nil {
		return path, nil
	}
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern) // the patterns are right
		slices.Sort(found)
		for _, path := range slices.Backward(found) {
			if _, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", ErrNoProfiler
}

// Nsight is Nsight Compute around a child that runs kernels.
type Nsight struct {
	Program string          // ncu, from Find
	Child   isolate.Options // how the child is started by itself
	Arch    string          // of the device
}

// Capture is what Nsight Compute has counted of one launch.
type Capture struct {
	Counters device.Counters
	Unknown  []string // metrics that this ncu does not know on this chip, as far as a figure is missing for it
}

// mostTries is how often a capture is taken anew without the metrics that were not known.
const mostTries = 8

// Capture runs a job in a child under the profiler and counts its second launch: the first one has warmed up what is warmed up once. The report, which
// Nsight Compute's own window can open, goes into a file whose name ends in .ncu-rep.
func (n *Nsight) Capture(ctx context.Context, job device.Job, report string) (*Capture, error) {
	c := &Capture{}
	metrics := toAsk(n.Arch)
	if known := n.query(ctx); known != nil {
		metrics, c.Unknown = known.part(metrics)
	}
	for range mostTries {
		err := n.take(ctx, job, report, metrics)
		var unknown unknownMetrics
		if errors.As(err, &unknown) {
			known, others := unknown.part(metrics)
			if len(others) > 0 {
				metrics, c.Unknown = known, append(c.Unknown, others...)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		c.Unknown = missed(metrics, c.Unknown)
		c.Counters, err = n.read(ctx, report)
		return c, err
	}
	return nil, fmt.Errorf("ncu does not know the metrics that it is asked for, %d of them so far: %s", len(c.Unknown), strings.Join(c.Unknown, ", "))
}

// missed are those of the unknown metrics that a figure lacks: it goes by no other names, or not all of those are known either.
func missed(known, unknown []string) []string {
	var all []string
	for _, m := range Metrics {
		whole := slices.ContainsFunc(m.from, func(names []string) bool {
			return !slices.ContainsFunc(names, func(name string) bool {
				return !slices.Contains(known, name) && !strings.HasPrefix(name, sourcePrefix)
			})
		})
		for _, name := range slices.Concat(m.from...) {
			if !whole && slices.Contains(unknown, name) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// knownMetrics are the names that a profiler lists for a chip, without what may follow a point.
type knownMetrics map[string]bool

// fewestMetrics is how many a list must have to be believed. That of any chip has thousands.
const fewestMetrics = 100

// query asks the profiler which metrics it knows on this machine. Where it does not say, they are found out one by one.
func (n *Nsight) query(ctx context.Context) knownMetrics {
	cmd := exec.CommandContext(ctx, n.Program, "--query-metrics")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.Output()
	if err != nil {
		return nil
	}
	return parseMetrics(text)
}

// parseMetrics reads what `ncu --query-metrics` prints: a line for each metric that begins with its name, among headings.
func parseMetrics(text []byte) knownMetrics {
	known := knownMetrics{}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) > 1 && bytes.Contains(fields[0], []byte("__")) {
			name, _, _ := strings.Cut(string(fields[0]), ".")
			known[name] = true
		}
	}
	if len(known) < fewestMetrics || !known["gpu__time_duration"] { // which every chip has
		return nil
	}
	return known
}

// part tells the metrics that are listed from those that are not. What the launch itself decides is in no list.
func (k knownMetrics) part(metrics []string) (known, unknown []string) {
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

// take has a report written.
func (n *Nsight) take(ctx context.Context, job device.Job, report string, metrics []string) error {
	folder, err := os.MkdirTemp("", "attune-profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	options := []string{
		"--set", "full", "--import-source", "no", "--metrics", strings.Join(metrics, ","),
		"--clock-control", "none", // the roofline was measured with the clocks as they are
		"--kernel-name", job.Entry, "--launch-skip", "1", "--launch-count", "1",
		"--force-overwrite", "--export", strings.TrimSuffix(report, ".ncu-rep"), // which ncu adds by itself
	}
	p, err := isolate.StartProfiled(ctx, n.Child, n.Program, options, filepath.Join(folder, "log"))
	if err != nil {
		return why(err.Error(), err)
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
	return why(p.Log(), runErr)
}

// read has a report printed and takes the counters of its last launch.
func (n *Nsight) read(ctx context.Context, report string) (device.Counters, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, n.Program, "--import", report, "--csv", "--page", "raw", "--print-units", "base")
	cmd.Env = append(os.Environ(), "LC_ALL=C") // numbers with points and commas in their usual places
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read %s: ncu: %w: %s", report, err, firstError(said.String()+string(text)))
	}
	launches, err := ParseCSV(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, firstError(said.String()+string(text)))
	}
	if len(launches) == 0 {
		return nil, fmt.Errorf("read %s: there is no launch in it", report)
	}
	return launches[len(launches)-1].Counters, nil
}

// unknownMetrics is the error of a profiler that does not know some metrics, as it names them: by name, or by a pattern of its own making.
type unknownMetrics []string

func (e unknownMetrics) Error() string {
	return "ncu does not know the metrics " + strings.Join(e, ", ")
}

// part tells the metrics that are known from those that are not.
func (e unknownMetrics) part(metrics []string) (known, unknown []string) {
	for _, metric := range metrics {
		is := func(name string) bool { return metric == name || strings.HasPrefix(metric, name+".") }
		if slices.ContainsFunc(e, is) {
			unknown = append(unknown, metric)
		} else {
			known = append(known, metric)
		}
	}
	return known, unknown
}

// unknownMetric finds the names of metrics that are not known: NAME, or regex:^NAME\.(sum|min|...)$ for one without a suffix.
var unknownMetric = regexp.MustCompile(`Failed to find metric (?:regex:\^)?([A-Za-z0-9_.\\]+)`)

// why makes of what the profiler says the error that it means; otherwise is the error where it says nothing of the kind.
func why(log string, otherwise error) error {
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
		return fmt.Errorf("%w; ncu says: %s", otherwise, text)
	}
	return otherwise
}

// firstError is the first line in which the profiler complains, without its mark; else its last line.
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
