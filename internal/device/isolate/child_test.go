//go:build linux

package isolate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/finding"
)

// childArg as the first argument makes this test binary a child; the second argument is its kind.
const childArg = "isolate-test-child"

// children are the kinds of child.
var children = map[string]func() error{
	"serve": func() error { return Serve(openMachine) },
	"binds": func() error { return Serve(func() (device.Machine, error) { return &binding{}, nil }) },
	"no clock": func() error {
		return Serve(func() (device.Machine, error) { return &devicetest.Machine{Kernels: kernels}, nil })
	},
	"no device": func() error { return Serve(func() (device.Machine, error) { return nil, errNoDevice }) },
	"broken": func() error {
		return Serve(func() (device.Machine, error) { return nil, errors.New("the driver is broken") })
	},
	"stuck":        func() error { return Serve(func() (device.Machine, error) { reportAndHang(); return nil, nil }) },
	"dies":         func() error { return errors.New("it dies at once") },
	"sleeper":      func() error { hang(); return nil },
	"garbage":      writeGarbage,
	"not reading":  neverRead,
	"slow to exit": func() error { return exitAfter(time.Second / 2) },
	"never exits":  func() error { return exitAfter(time.Hour) },
	"parent":       runAsParent,
}

func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != childArg {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child waits 1 s when it exits
		os.Exit(m.Run())
	}
	if err := children[os.Args[2]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// command starts this test binary as a child.
func command(t testing.TB, kind string) []string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, childArg, kind}
}

var errNoDevice = fmt.Errorf("%w: the test has none", device.ErrNoDevice)

// machine is the machine in a child. It keeps the loaded image and returns made-up times.
type machine struct {
	devicetest.Machine
	image []byte
}

func openMachine() (device.Machine, error) {
	m := &machine{}
	m.Kernels = map[string]devicetest.Kernel{"image": func(l *devicetest.Launch) error {
		sum := sha256.Sum256(m.image)
		copy(l.At(l.Pointer(0), len(sum)), sum[:])
		return nil
	}}
	for name, kernel := range kernels {
		m.Kernels[name] = kernel
	}
	return m, nil
}

func (m *machine) Load(image []byte, entry string) (device.Function, error) {
	m.image = image
	return m.Machine.Load(image, entry)
}

// Time returns the plan's numbers of samples and launches. A sample is the width of the job's grid,
// in seconds. With a cold L2 it sets all other fields of the series too, some from the plan.
func (m *machine) Time(jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	var all []device.Series
	for _, job := range jobs {
		if job.Entry == "hang" {
			hang()
		}
		s := device.Series{LaunchesPerSample: plan.LaunchLimit()}
		for range plan.Samples {
			s.Seconds = append(s.Seconds, float64(job.Grid[0]))
		}
		if plan.ColdL2 {
			empty := 6e-7
			s.Copies, s.WarmSeconds, s.Unstable, s.Processes, s.Restored = 4, plan.Rest.Seconds(), true, []int{1, 1}, true
			s.WithFlush, s.Flush, s.Single, s.EmptyNode, s.NoReadings = []float64{3}, []float64{2}, []float64{4}, &empty, "no NVML"
			s.Readings = []device.Reading{{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 412.5, Celsius: 45, Throttled: []string{"power cap"}}, {}}
			if plan.Energy {
				s.Joules = 2
			}
			s.Check = timedCheck(plan)
		}
		all = append(all, s)
	}
	return all, nil
}

// timedCheck has every field set. Its launches have outputs of several lengths, two of them equal.
func timedCheck(plan device.Plan) *device.TimedCheck {
	c := &device.TimedCheck{Outputs: 4, Findings: []finding.Finding{finding.New(finding.RemembersResults, "slower")}}
	if plan.Fresh {
		c.FreshSeconds = 5e-6
	}
	first, second := []byte("the output of a timed launch"), []byte{0, 1}
	c.Launches = []device.TimedLaunch{
		{Rotation: device.Rotation{Secret: plan.Secret, Count: 3, Step: 2}, Outputs: [][]byte{first, second}},
		{Rotation: device.Rotation{Secret: plan.Secret, Count: 9}, Outputs: [][]byte{second}},
	}
	return c
}

// binding is a machine whose Time allocates the buffers of the jobs, as on a GPU.
type binding struct{ devicetest.Machine }

func (m *binding) Time(jobs []device.Job, _ device.Plan) ([]device.Series, error) {
	all := make([]device.Series, len(jobs))
	for _, job := range jobs {
		buffers, _, err := device.Bind(m, job)
		if err != nil {
			return nil, err
		}
		for _, b := range buffers {
			if err := b.Free(m); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// kernels have two arguments: an output of 4 bytes and a number.
var kernels = map[string]devicetest.Kernel{
	"fill":      fillOutputs,
	"increment": kernelOf(func(n uint32) uint32 { return n + 1 }),
	"pid":       kernelOf(func(uint32) uint32 { return uint32(os.Getpid()) }),
	"grow": kernelOf(func(n uint32) uint32 {
		memory := make([]byte, 64<<20)
		memory[len(memory)-1] = byte(n)
		return uint32(memory[len(memory)-1])
	}),
	"print": kernelOf(func(n uint32) uint32 {
		fmt.Println(strings.Repeat("a kernel prints. ", 10_000))
		fmt.Fprintln(os.Stderr, "and complains")
		return n
	}),
	"hang":            func(*devicetest.Launch) error { reportAndHang(); return nil },
	"exit":            func(*devicetest.Launch) error { os.Exit(7); return nil },
	"exit silently":   func(*devicetest.Launch) error { os.Exit(0); return nil },
	"orphan":          leaveOrphan,
	"segfault":        func(*devicetest.Launch) error { segfault(); return nil },
	"illegal address": func(l *devicetest.Launch) error { l.At(l.Pointer(0)+1<<40, 1)[0] = 0; return nil },
	"hopper": func(l *devicetest.Launch) error {
		m := l.Map(2)
		saw := fmt.Sprint(l.Job.Cluster, l.Job.Cooperative, l.Job.Unordered, m.Address == l.Pointer(0), m.Map)
		copy(l.At(l.Pointer(0), 128), fmt.Sprintf("%-128s", saw))
		return nil
	},
	"fail": func(*devicetest.Launch) error { return errors.New("the kernel failed") },
	"count": func(l *devicetest.Launch) error {
		launches++
		binary.LittleEndian.PutUint32(l.At(l.Pointer(0), 4), launches)
		return nil
	},
}

// launches counts those of "count".
var launches uint32

// fillOutputs writes every byte of every output.
func fillOutputs(l *devicetest.Launch) error {
	for i, arg := range l.Job.Args {
		if arg.Output > 0 {
			clear(l.At(l.Pointer(i), arg.Output))
		}
	}
	return nil
}

func kernelOf(f func(uint32) uint32) devicetest.Kernel {
	return func(l *devicetest.Launch) error {
		binary.LittleEndian.PutUint32(l.At(l.Pointer(0), 4), f(uint32(l.Int(1))))
		return nil
	}
}

// hang blocks the thread, like a driver that waits for a GPU.
func hang() {
	for {
		_, _ = syscall.Select(0, nil, nil, nil, nil)
	}
}

// leaveOrphan starts a process, prints its ID, and exits.
func leaveOrphan(*devicetest.Launch) error {
	orphan := exec.Command(os.Args[0], childArg, "sleeper")
	if err := orphan.Start(); err != nil {
		return err
	}
	fmt.Println("orphan", orphan.Process.Pid)
	os.Exit(7)
	return nil
}

// reportAndHang prints the process ID and hangs.
func reportAndHang() {
	fmt.Println("hanging in", os.Getpid())
	hang()
}

// segfault dies of the signal. It removes Go's handler, which would exit with a stack trace.
func segfault() {
	var action [64]byte // the kernel's struct sigaction with the default action
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGSEGV), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	hang()
}

// writeGarbage writes bytes that are not gob, and hangs.
func writeGarbage() error {
	if _, err := os.NewFile(responseFD, "responses").WriteString("\x05hello"); err != nil {
		return err
	}
	hang()
	return nil
}

// neverRead sends the first response and never reads a request.
func neverRead() error {
	if err := newSender(os.NewFile(responseFD, "responses"), false).send(&response{}); err != nil {
		return err
	}
	hang()
	return nil
}

// exitAfter serves requests, and exits some time after its parent has closed the pipe.
func exitAfter(rest time.Duration) error {
	parentGone = func() { time.Sleep(rest); os.Exit(0) }
	err := Serve(openMachine)
	time.Sleep(time.Hour)
	return err
}

// runAsParent is a parent that a test can kill. It starts a child that hangs.
func runAsParent() error {
	ctx := context.Background()
	d, err := Start(ctx, Options{Command: []string{os.Args[0], childArg, os.Args[3]}, Limit: time.Hour, Stderr: os.Stdout})
	if err == nil {
		_, err = d.Run(ctx, newJob("hang", 0))
	}
	return err
}

func newJob(entry string, n int32) device.Job {
	return device.Job{
		Image: []byte("an image"), Entry: entry, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
		Args: []device.Arg{device.Out(4), device.Int32(n)},
	}
}

// process reports whether a process exists and is not a zombie.
func process(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ") // after the name, which may contain spaces
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// eventually waits until a condition is true.
func eventually(t *testing.T, name string, condition func() bool) {
	t.Helper()
	for range 12_000 { // a minute: the machine may be loaded
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s: still false after a minute", name)
}
