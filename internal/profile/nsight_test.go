//go:build linux

package profile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/device/isolate"
)

// childArg as the first argument makes this test binary a server of a machine.
const childArg = "profile-test-child"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != childArg {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child waits 1 s when it exits
		os.Exit(m.Run())
	}
	if err := isolate.Serve(openMachine); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openMachine() (device.Machine, error) {
	if os.Getenv("FAKE_GPU") == "none" {
		return nil, fmt.Errorf("%w: the test has none", device.ErrNoDevice)
	}
	return &devicetest.Machine{Kernels: map[string]devicetest.Kernel{
		"k": func(l *devicetest.Launch) error {
			l.At(l.Pointer(0), 1)[0] = 1
			return nil
		},
		"exit": func(*devicetest.Launch) error { os.Exit(7); return nil },
	}}, nil
}

// fakeNCU accepts the options of ncu that attune uses. FAKE_NCU selects its behaviour: it rejects
// the metrics named after "unknown:", has no permission, or writes a report. FAKE_IMPORT selects
// how a report is printed; the default is as CSV.
const fakeNCU = `#!/bin/sh
set -f
if [ "$1" = --query-metrics ]; then
	[ -f "$FAKE_QUERY" ] || exit 1
	cat "$FAKE_QUERY"
	exit 0
fi
case " $* " in *" --import "*)
	[ "$3" = --csv ] && [ "$4 $5" = "--page raw" ] && [ "$6 $7" = "--print-units base" ] && [ "$LC_ALL" = C ] || exit 9
	case $FAKE_IMPORT in
	broken) echo "==ERROR== not a report" >&2; exit 1 ;;
	empty) echo '"ID","gpu__time_duration.sum"'; exit 0 ;;
	message) echo "==ERROR== Importer failed"; exit 0 ;;
	esac
	cat "$2"
	exit 0
esac
while [ $# -gt 0 ]; do
	case $1 in
	--log-file) log=$2 ;;
	--metrics) metrics=$2 ;;
	--export) report=$2.ncu-rep ;;
	--kernel-name) kernel=$2 ;;
	--launch-skip) skip=$2 ;;
	--launch-count) count=$2 ;;
	--set|--import-source|--clock-control) ;;
	--force-overwrite) shift; continue ;;
	--*) echo "unknown option $1" >&2; exit 9 ;;
	*) break ;;
	esac
	shift 2
done
[ "$skip $count" = "1 1" ] || exit 9
for word in $FAKE_NCU; do
	case $word in unknown:*)
		name=${word#unknown:}
		case ",$metrics," in *,$name*)
			echo "==PROF== Connected to process 7" >"$log"
			echo "==ERROR== Failed to find metric regex:^${name%%.*}\\.(sum|min|max|avg|pct|ratio|max_rate)\$" >>"$log"
			exit 1 ;;
		esac ;;
	named:*) echo "==ERROR== Failed to find metric ${word#named:}" >"$log"; exit 1 ;;
	esac
done
"$@"
code=$?
echo "==PROF== Connected to process 7" >"$log"
for word in $FAKE_NCU; do
	case $word in
	forbidden)
		echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0." >>"$log"
		echo "==WARNING== No kernels were profiled." >>"$log"
		exit 0 ;;
	nothing) echo "==WARNING== No kernels were profiled." >>"$log"; exit 0 ;;
	unloaded) echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded" >>"$log"; exit 255 ;;
	esac
done
{
	echo '"ID","Kernel Name","gpu__time_duration.sum"'
	echo '"","","ns"'
	echo "\"0\",\"$kernel\",\"8100\""
} >"$report"
exit $code
`

// nsight is the fake profiler around a child of this binary.
func nsight(t *testing.T, behaviour string) *Nsight {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "ncu")
	childtest.Program(t, program, fakeNCU)
	t.Setenv("FAKE_NCU", behaviour)
	t.Setenv("TMPDIR", t.TempDir())
	return &Nsight{Program: program, Arch: "sm_90", Child: isolate.Options{Command: []string{self, childArg}, Limit: time.Minute}}
}

func newJob(entry string) device.Job {
	return device.Job{Image: []byte("an image"), Entry: entry, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []device.Arg{device.Out(1)}}
}

func TestCapture(t *testing.T) {
	check := func(behaviour string, unknown ...string) {
		t.Helper()
		n := nsight(t, behaviour)
		report := filepath.Join(t.TempDir(), "a.ncu-rep")
		c, err := n.Capture(t.Context(), newJob("k"), report)
		if err != nil {
			t.Fatalf("%s: %v", behaviour, err)
		}
		if c.Counters["gpu__time_duration.sum"] != 8100 || !slices.Equal(c.Unknown, unknown) {
			t.Errorf("%s: %+v; want %v unknown", behaviour, c, unknown)
		}
		if _, err := os.Stat(report); err != nil {
			t.Errorf("%s: there is no report: %v", behaviour, err)
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("%s: not deleted: %v, %v", behaviour, left, err)
		}
	}
	check("good")
	// Unknown metrics are dropped one after another.
	check("unknown:lts__t_sectors.sum", "lts__t_sectors.sum")
	check("unknown:dram__bytes.sum") // the figure has another alternative
	check("unknown:sm__ops_path_tensor_src_fp8.sum unknown:launch__waves_per_multiprocessor", "sm__ops_path_tensor_src_fp8.sum", "launch__waves_per_multiprocessor")
}

// If ncu lists its metrics, Capture requests no unknown metric and reports all that a figure needs.
func TestCaptureWithMetricList(t *testing.T) {
	check := func(list string, behaviour string, unknown ...string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "metrics")
		if err := os.WriteFile(file, []byte(list), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("FAKE_QUERY", file)
		c, err := nsight(t, behaviour).Capture(t.Context(), newJob("k"), filepath.Join(t.TempDir(), "a.ncu-rep"))
		if err != nil || !slices.Equal(c.Unknown, unknown) {
			t.Errorf("%+v, %v; want %v unknown", c, err, unknown)
		}
	}
	var list strings.Builder
	list.WriteString("Device NVIDIA H200 (GH100)\n----- -----\nMetric Name  Metric Type  Metric Unit  Metric Description\n")
	for i := range minMetrics {
		fmt.Fprintf(&list, "other__metric_%d   Counter   inst   # of others\n", i)
	}
	missing := []string{"lts__t_sectors", "sm__ops_path_tensor_src_int1", "sm__inst_executed_pipe_tensor", "dram__bytes"}
	for _, name := range requestedMetrics("sm_90") {
		if base, _, _ := strings.Cut(name, "."); !slices.Contains(missing, base) && !strings.HasPrefix(base, "launch__") {
			fmt.Fprintf(&list, "%-80s Counter   sector  # of sectors\n", base)
		}
	}
	// The fake rejects the metrics that the list lacks, so Capture fails if it requests them.
	rejecting := "unknown:lts__t_sectors.sum unknown:sm__ops_path_tensor_src_int1.sum unknown:sm__inst_executed_pipe_tensor.sum unknown:dram__bytes.sum"
	check(list.String(), rejecting, "sm__ops_path_tensor_src_int1.sum", "lts__t_sectors.sum")
	// An implausible list is ignored.
	check("dram__bytes Counter\n", "unknown:lts__t_sectors.sum", "lts__t_sectors.sum")
}

func TestCaptureFails(t *testing.T) {
	check := func(behaviour, entry, want string) error {
		t.Helper()
		n := nsight(t, behaviour)
		c, err := n.Capture(t.Context(), newJob(entry), filepath.Join(t.TempDir(), "a.ncu-rep"))
		if c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %s: got %v, %v; want %q", behaviour, entry, c, err, want)
		}
		return err
	}
	if err := check("forbidden", "k", "ERR_NVGPUCTRPERM"); !errors.Is(err, ErrNoPermission) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without permission: %v", err)
	}
	check("nothing", "k", "ncu wrote no report and ended with code 0; ncu log: No kernels were profiled.")
	check("unloaded", "k", "code 255; ncu log: Failed to initialize the profiler: LibraryNotLoaded")
	check("good", "exit", "the process that ran the kernel died: exit status 7")
	check("named:not__requested.sum", "k", "ncu does not know the metrics not__requested.sum")
	all := "unknown:dram__bytes.sum unknown:lts__t_sectors.sum unknown:launch__waves unknown:launch__registers unknown:sm__warps_active unknown:sm__throughput " +
		"unknown:smsp__issue_active unknown:smsp__inst_executed unknown:lts__throughput"
	check(all, "k", "ncu does not know the metrics")
	t.Setenv("FAKE_GPU", "none")
	if err := check("good", "k", "no GPU: the test has none"); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("without a GPU: %v", err)
	}
}

func TestReadFails(t *testing.T) {
	for behaviour, want := range map[string]string{
		"broken":  "ncu: exit status 1: not a report",
		"empty":   "it has no launch",
		"message": "Importer failed",
	} {
		n := nsight(t, "good")
		t.Setenv("FAKE_IMPORT", behaviour)
		if c, err := n.Capture(t.Context(), newJob("k"), filepath.Join(t.TempDir(), "a.ncu-rep")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want %q", behaviour, c, err, want)
		}
	}
}

func TestCaptureIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := nsight(t, "good").Capture(ctx, newJob("k"), filepath.Join(t.TempDir(), "a.ncu-rep")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", c, err)
	}
	n := nsight(t, "good")
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if c, err := n.Capture(t.Context(), newJob("k"), "a.ncu-rep"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a temporary folder: %v, %v", c, err)
	}
}

func TestFind(t *testing.T) {
	before := places
	defer func() { places = before }()
	folder, inPath := t.TempDir(), t.TempDir()
	places = []string{filepath.Join(folder, "cuda", "ncu"), filepath.Join(folder, "nsight", "*", "ncu")}
	t.Setenv("PATH", inPath)
	if path, err := Find(); !errors.Is(err, ErrNoProfiler) || strings.Contains(err.Error(), "\n") {
		t.Errorf("with none: %q, %v", path, err)
	}
	found := func(want string) {
		t.Helper()
		if path, err := Find(); err != nil || path != want {
			t.Errorf("got %q, %v; want %q", path, err, want)
		}
	}
	put := func(path string, mode os.FileMode) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"), mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put(filepath.Join(folder, "nsight", "2024.1", "ncu"), 0o755)
	newer := put(filepath.Join(folder, "nsight", "2025.3", "ncu"), 0o755)
	put(filepath.Join(folder, "nsight", "2026.1", "ncu"), 0o644) // not executable
	found(newer)
	found(put(filepath.Join(folder, "cuda", "ncu"), 0o755))
	found(put(filepath.Join(inPath, "ncu"), 0o755))
}
