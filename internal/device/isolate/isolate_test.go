//go:build linux

package isolate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/tensormap"
)

// long is a limit that no test reaches.
const long = time.Minute

// start returns a device that is closed at the end of the test, and the output of its child.
func start(t testing.TB, kind string, limit time.Duration) (*Device, *output) {
	t.Helper()
	out := &output{}
	d, err := Start(t.Context(), Options{Command: command(t, kind), Limit: limit, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, out
}

// output collects a child's output. A test may read it while the child writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *output) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *output) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// outputOf runs a kernel and returns its output, a number.
func outputOf(t *testing.T, d device.Device, entry string, n int32) int {
	t.Helper()
	got, err := d.Run(t.Context(), newJob(entry, n))
	if err != nil {
		t.Fatalf("%s: %v", entry, err)
	}
	if len(got.Outputs) != 1 || len(got.Outputs[0]) != 4 {
		t.Fatalf("%s: outputs %v; want one of 4 bytes", entry, got.Outputs)
	}
	return int(binary.LittleEndian.Uint32(got.Outputs[0]))
}

func expectLost(t *testing.T, d device.Device) {
	t.Helper()
	if _, err := d.Run(t.Context(), newJob("increment", 1)); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("Run of a lost device: %v; want ErrUsedUp", err)
	}
	if _, err := d.Time(t.Context(), []device.Job{newJob("increment", 1)}, device.Plan{Samples: 1}); !errors.Is(err, ErrDeviceLost) {
		t.Errorf("Time of a lost device: %v; want ErrUsedUp", err)
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	m, _ := openMachine()
	if diff := cmp.Diff(m.Facts(), d.Facts()); diff != "" {
		t.Error(diff)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	for n := range int32(20) {
		if got := outputOf(t, d, "increment", n); got != int(n)+1 {
			t.Errorf("%d incremented: %d", n, got)
		}
	}
	if got := outputOf(t, d, "pid", 0); got == os.Getpid() || got != d.cmd.Process.Pid {
		t.Errorf("the kernel ran in process %d; want the child, %d", got, d.cmd.Process.Pid)
	}
	if got := outputOf(t, d, "grow", 5); got != 5 {
		t.Errorf("a kernel that allocates memory: %d", got)
	}
}

// The pipe carries a whole outcome: findings, attributes and several outputs.
func TestOutcomeOverThePipe(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	job := newJob("increment", 1)
	job.Args = append(job.Args, device.Out(2))
	job.Relaunches = []device.Relaunch{{}, {}}
	m, _ := openMachine()
	want, err := device.Run(m, job)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) != 1 || got.Findings[0].Kind != finding.Unwritten {
		t.Errorf("findings %v; want the unwritten output", got.Findings)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	wide := newJob("increment", 1)
	wide.Grid[0] = 4
	got, err := d.Time(t.Context(), []device.Job{newJob("increment", 1), wide}, device.Plan{Samples: 2, Launches: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := []device.Series{{Seconds: []float64{1, 1}, LaunchesPerSample: 3}, {Seconds: []float64{4, 4}, LaunchesPerSample: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every field of a plan reaches the child, and every field of a series returns.
func TestPlanAndSeriesOverThePipe(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	jobs := []device.Job{newJob("increment", 1)}
	plan := device.Plan{Samples: 2, ColdL2: true, Launches: 7, Rest: 50 * time.Millisecond, Load: time.Second, Secret: 1<<64 - 3, Fresh: true, Energy: true, Estimate: true}
	want, err := (&machine{}).Time(jobs, plan)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Time(t.Context(), jobs, plan)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, all := range []any{plan, want[0], *want[0].Check} {
		value := reflect.ValueOf(all)
		for i := range value.NumField() {
			if value.Field(i).IsZero() {
				t.Errorf("%s has its zero value, so the test does not check it: %+v", value.Type().Field(i).Name, all)
			}
		}
	}
}

func TestLargePayload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	d, _ := start(t, "serve", long)
	image := make([]byte, 50<<20)
	for i := 0; i < len(image); i += 997 {
		image[i] = byte(i)
	}
	job := newJob("image", 0)
	job.Image = image
	job.Args = []device.Arg{device.Out(sha256.Size), device.In(image[:1<<20])}
	got, err := d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(image); !bytes.Equal(got.Outputs[0], want[:]) {
		t.Error("the image did not arrive complete")
	}
	// In the other direction: the whole output is sent, also the part that the kernel does not
	// fill.
	job.Args[0] = device.Out(4 << 20)
	got, err = d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(image); len(got.Outputs[0]) != 4<<20 || !bytes.HasPrefix(got.Outputs[0], want[:]) {
		t.Errorf("an output of %d bytes arrived as %d", 4<<20, len(got.Outputs[0]))
	}
}

func TestKernelsMayPrint(t *testing.T) {
	t.Parallel()
	d, out := start(t, "serve", long)
	for range 3 {
		if got := outputOf(t, d, "print", 9); got != 9 {
			t.Errorf("a kernel that prints: %d", got)
		}
	}
	d.Close()
	if text := out.String(); strings.Count(text, "a kernel prints. ") != 6*10_000 || strings.Count(text, "and complains\n") != 6 {
		t.Errorf("%d bytes of the kernel's prints arrived", len(text))
	}
}

// What kernels print is kept apart from the messages of the child.
func TestKernelsPrintElsewhere(t *testing.T) {
	t.Parallel()
	var printed, messages bytes.Buffer
	d, err := Start(t.Context(), Options{Command: command(t, "serve"), Limit: long, Stdout: &printed, Stderr: &messages})
	if err != nil {
		t.Fatal(err)
	}
	if got := outputOf(t, d, "print", 9); got != 9 {
		t.Errorf("a kernel that prints: %d", got)
	}
	d.Close()
	if text := printed.String(); !strings.HasPrefix(text, "a kernel prints. ") || strings.Contains(text, "complains") {
		t.Errorf("%d bytes of the kernel's prints arrived", len(text))
	}
	if text := messages.String(); strings.Contains(text, "prints") || !strings.Contains(text, "and complains\n") {
		t.Errorf("the messages are %q", text)
	}
}

// A device can be used after an error that is not a fault.
func TestErrorsThatKeepTheDevice(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	bad := newJob("increment", 1)
	bad.Grid[0] = 0
	for _, c := range []struct {
		job  device.Job
		want string
	}{
		{newJob("fail", 0), "the kernel failed"},
		{bad, "job increment: grid x is 0; want 1 to 2147483647"},
	} {
		got, err := d.Run(t.Context(), c.job)
		if err == nil || err.Error() != c.want || got != nil {
			t.Errorf("got %v, %v; want the error %q", got, err, c.want)
		}
	}
	if got := outputOf(t, d, "increment", 1); got != 2 {
		t.Errorf("afterwards the output is %d", got)
	}
}

func TestNoClock(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "no clock", long)
	if _, err := d.Time(t.Context(), []device.Job{newJob("increment", 1)}, device.Plan{Samples: 1}); !errors.Is(err, device.ErrNoClock) {
		t.Errorf("got %v; want ErrNoClock", err)
	}
	if got := outputOf(t, d, "increment", 1); got != 2 {
		t.Errorf("afterwards the output is %d", got)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  string
		want  string
		check func(error) bool
	}{
		{"no device", "no GPU: the test has none", func(err error) bool { return errors.Is(err, device.ErrNoDevice) }},
		{"broken", "the driver is broken", func(err error) bool { return !errors.Is(err, device.ErrNoDevice) }},
		{
			"dies", "open the device: the process that ran the kernel died: exit status 1",
			func(err error) bool { return errors.As(err, new(*device.Crash)) },
		},
	} {
		d, err := Start(t.Context(), Options{Command: command(t, c.kind), Limit: long})
		if err == nil || err.Error() != c.want || !c.check(err) || d != nil {
			t.Errorf("%s: got %v, %#v; want the error %q", c.kind, d, err, c.want)
		}
	}
	missing := filepath.Join(t.TempDir(), "attune")
	_, err := Start(t.Context(), Options{Command: []string{missing}, Limit: long})
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "start the child process: ") {
		t.Errorf("got %v; want an error about the missing program", err)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	check := func(kind string, call func(d *Device) error) {
		t.Helper()
		d, _ := start(t, kind, long)
		d.limit, d.launch = limit, limit // the start has the long limit
		pid := d.cmd.Process.Pid
		err := call(d)
		var timeout *device.Timeout
		if !errors.As(err, &timeout) || timeout.Limit != limit || !strings.Contains(err.Error(), "no result within 300ms") {
			t.Errorf("%s: got %v; want a timeout of %s", kind, err, limit)
		}
		eventually(t, "the child is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
		expectLost(t, d)
	}
	check("serve", func(d *Device) error { _, err := d.Run(t.Context(), newJob("hang", 0)); return err })
	check("serve", func(d *Device) error {
		_, err := d.Time(t.Context(), []device.Job{newJob("hang", 0)}, device.Plan{Samples: 1})
		return err
	})
	check("not reading", func(d *Device) error {
		job := newJob("increment", 0)
		job.Image = make([]byte, 1<<20) // more than a pipe's buffer
		_, err := d.Run(t.Context(), job)
		return err
	})
}

// A checked launch has a limit of its own. A child that it has killed is gone at once.
func TestLaunchLimit(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	d, err := Start(t.Context(), Options{Command: command(t, "serve"), Limit: long, LaunchLimit: limit, Stderr: &output{}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = d.Run(t.Context(), newJob("hang", 0))
	var timeout *device.Timeout
	if !errors.As(err, &timeout) || timeout.Limit != limit {
		t.Errorf("got %v; want a timeout of %s", err, limit)
	}
	if err := d.Close(); err != nil || time.Since(began) > closeGrace/2 {
		t.Errorf("closed after %s: %v", time.Since(began), err)
	}
}

func TestTimeoutOfTheStart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for limit := time.Second; ; limit *= 2 { // until the child has the time to start and to print
		out := &output{}
		_, err := Start(t.Context(), Options{Command: command(t, "stuck"), Limit: limit, Stderr: out})
		var timeout *device.Timeout
		if !errors.As(err, &timeout) {
			t.Fatalf("got %v; want a timeout", err)
		}
		var pid int
		if _, err := fmt.Sscanf(out.String(), "hanging in %d\n", &pid); err != nil && limit < long {
			continue
		} else if err != nil || process(pid) {
			t.Errorf("the child printed %q (%v), running: %t", out, err, process(pid))
		}
		return
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	d, out := start(t, "serve", long)
	pid := d.cmd.Process.Pid
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		eventually(t, "the kernel hangs", func() bool { return strings.Contains(out.String(), "hanging") })
		cancel()
	}()
	if _, err := d.Run(ctx, newJob("hang", 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
	eventually(t, "the child is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	expectLost(t, d)
}

func TestCancelledStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Command: command(t, "stuck"), Limit: long}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entry, want string }{
		{"segfault", "signal: segmentation fault"},
		{"exit", "exit status 7"},
		{"exit silently", "it exited without a response"},
	} {
		d, _ := start(t, "serve", long)
		pid := d.cmd.Process.Pid
		_, err := d.Run(t.Context(), newJob(c.entry, 0))
		var crash *device.Crash
		if !errors.As(err, &crash) || !strings.HasPrefix(crash.How, c.want) {
			t.Errorf("%s: got %v; want a crash by %q", c.entry, err, c.want)
		}
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("%s: process %d still exists", c.entry, pid)
		}
		expectLost(t, d)
	}
}

// A process that the child has started neither hides the child's death nor outlives it.
func TestCrashLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	d, out := start(t, "serve", long)
	_, err := d.Run(t.Context(), newJob("orphan", 0))
	var crash *device.Crash
	if !errors.As(err, &crash) || crash.How != "exit status 7" {
		t.Errorf("got %v; want a crash by exit status 7", err)
	}
	var pid int
	if _, err := fmt.Sscanf(out.String(), "orphan %d\n", &pid); err != nil {
		t.Fatalf("the child printed %q: %v", out, err)
	}
	eventually(t, "the orphan has ended", func() bool { return !process(pid) })
}

// If a child dies between two calls, the next call returns a crash.
func TestCrashBetweenCalls(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.exited
	_, err := d.Run(t.Context(), newJob("increment", 1))
	var crash *device.Crash
	if !errors.As(err, &crash) || crash.How != "signal: killed" {
		t.Errorf("got %v; want a crash by signal: killed", err)
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	_, err := d.Run(t.Context(), newJob("illegal address", 0))
	var fault *device.Fault
	if !errors.As(err, &fault) || fault.Code != "ILLEGAL_ADDRESS" || fault.Operation != "run the kernel" || fault.Text == "" {
		t.Errorf("got %#v; want the machine's fault", err)
	}
	expectLost(t, d)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if state := d.cmd.ProcessState; !state.Success() {
		t.Errorf("the child did not exit by itself: %v", state)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	for range 3 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(syscall.Kill(d.cmd.Process.Pid, 0), syscall.ESRCH) {
		t.Error("the child is still running, or a zombie")
	}
	if !d.cmd.ProcessState.Success() {
		t.Errorf("the child ended with %v", d.cmd.ProcessState)
	}
	if _, err := d.Run(t.Context(), newJob("increment", 1)); err == nil {
		t.Error("Run after Close: no error")
	}
}

// Close waits for a child that exits slowly, and kills one that does not exit within the grace time.
func TestCloseKills(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "never exits", long)
	d.grace = 50 * time.Millisecond
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if got := d.cmd.ProcessState.String(); got != "signal: killed" {
		t.Errorf("the child ended with %s", got)
	}
	d, _ = start(t, "slow to exit", long)
	d.grace = long
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if !d.cmd.ProcessState.Success() {
		t.Errorf("Close did not wait for a child that exits slowly: %v", d.cmd.ProcessState)
	}
}

func TestChildIgnoresInterrupt(t *testing.T) {
	t.Parallel()
	d, _ := start(t, "serve", long)
	for range 3 {
		if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if got := outputOf(t, d, "increment", 1); got != 2 {
			t.Errorf("the output is %d", got)
		}
	}
}

// A child exits when its parent is killed, even if it hangs in a launch or while it opens.
func TestParentIsKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"serve", "stuck"} {
		parent := exec.Command(command(t, "")[0], childArg, "parent", kind)
		out, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		var pid int
		if _, scanErr := fmt.Sscanf(line, "hanging in %d", &pid); err != nil || scanErr != nil {
			t.Fatalf("%s: the child printed %q: %v", kind, line, errors.Join(err, scanErr))
		}
		if pid == parent.Process.Pid || !process(pid) {
			t.Fatalf("%s: the child of %d is %d, running: %t", kind, parent.Process.Pid, pid, process(pid))
		}
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, kind+": the child has ended", func() bool { return !process(pid) })
		_ = parent.Wait() // it was killed
	}
}

func TestGarbageOnThePipe(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	_, err := Start(t.Context(), Options{Command: command(t, "garbage"), Limit: long})
	if err == nil || !strings.HasPrefix(err.Error(), "open the device: exchange messages with the child process: ") {
		t.Errorf("got %v; want an error of the exchange", err)
	}
}

// Not parallel, because it counts the goroutines and the open files of the process.
func TestNoLeaks(t *testing.T) {
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc to count files in")
		}
		return len(open)
	}
	once := func(kind string, limit time.Duration, entry string) {
		d, err := Start(t.Context(), Options{Command: command(t, kind), Limit: long, Stderr: io.Discard})
		if err != nil {
			return
		}
		d.limit, d.launch = limit, limit
		_, _ = d.Run(t.Context(), newJob(entry, 0))
		d.Close()
	}
	once("serve", long, "increment") // Go opens files of its own for the first child
	goroutines, opened := runtime.NumGoroutine(), files()
	for i := range 50 {
		switch i % 10 {
		case 0:
			once("broken", long, "")
		case 1:
			once("serve", long, "exit")
		case 2:
			once("serve", long, "illegal address")
		case 3:
			once("not reading", time.Second/50, "increment")
		default:
			once("serve", long, "increment")
		}
	}
	eventually(t, "no more goroutines and files than before", func() bool {
		return runtime.NumGoroutine() <= goroutines && files() <= opened
	})
	if t.Failed() {
		t.Errorf("%d goroutines, before %d; %d files, before %d", runtime.NumGoroutine(), goroutines, files(), opened)
	}
}

// Attributes of a launch and tensor maps reach the child, and the maps point to the child's buffers.
func TestHopperJobsOverThePipe(t *testing.T) {
	d, _ := start(t, "serve", long)
	job := newJob("hopper", 0)
	m := tensormap.Map{
		Type: "f16", Dims: []int{64, 1}, Strides: []int{128}, Box: []int{8, 1}, ElementStrides: []int{1, 1}, Interleave: "none", Swizzle: "32B", OOB: "nan",
		L2Promotion: "64B",
	}
	job.Grid[0], job.Cluster, job.Cooperative, job.Unordered = 4, [3]int{2, 1, 1}, true, true
	job.Args[0] = device.Out(128)
	job.Args = append(job.Args, device.Arg{TensorMap: &device.TensorMap{Arg: 0, Map: m}})
	got, err := d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if saw, want := strings.TrimSpace(string(got.Outputs[0])), fmt.Sprint(job.Cluster, true, true, true, m); saw != want {
		t.Errorf("the kernel saw %q; want %q", saw, want)
	}
}

// The outputs of an unordered job that differ between launches come back.
func TestRepeatedOutputsOverThePipe(t *testing.T) {
	d, _ := start(t, "serve", long)
	job := newJob("count", 0)
	job.Unordered = true
	got, err := d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Repeated) != 1 || len(got.Repeated[0]) != 1 || !bytes.Equal(got.Outputs[0], []byte{1, 0, 0, 0}) || !bytes.Equal(got.Repeated[0][0], []byte{2, 0, 0, 0}) {
		t.Errorf("outputs %v, then %v", got.Outputs, got.Repeated)
	}
}
