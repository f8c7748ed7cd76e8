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
)

// childArg as its first argument makes this test binary a child of the kind that the second one
// names.
const childArg = "isolate-test-child"

// children are the lives that a child may lead.
var children = map[string]func() error{
	"serve": func() error { return Serve(openMachine) },
	"binds": func() error { return Serve(func() (device.Machine, error) { return &binding{}, nil }) },
	"no clock": func() error {
		return Serve(func() (device.Machine, error) { return &devicetest.Machine{Kernels: kernels}, nil })
	},
	"no device": func() error { return Serve(func() (device.Machine, error) { return nil, errNothingHere }) },
	"broken": func() error {
		return Serve(func() (device.Machine, error) { return nil, errors.New("the driver is in pieces") })
	},
	"stuck":     func() error { return Serve(func() (device.Machine, error) { sayAndHang(); return nil, nil }) },
	"dies":      func() error { return errors.New("it had no wish to live") },
	"sleeper":   func() error { hang(); return nil },
	"rubbish":   talkRubbish,
	"deaf":      hearNothing,
	"lingering": ignoreTheEnd,
	"parent":    beParent,
}

func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != childArg {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector would have each child wait a second at its end
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

var errNothingHere = fmt.Errorf("%w: there is nothing here", device.ErrNoDevice)

// machine is the machine in a child: it keeps the image that was loaded and has a clock of sorts.
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

// Time answers with what it was asked: as many samples of each job, with as many launches, each as
// long as the job's grid is wide. Asked for a cold L2, it fills the rest in, too.
func (m *machine) Time(jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	var all []device.Series
	for _, job := range jobs {
		if job.Entry == "hang" {
			hang()
		}
		s := device.Series{LaunchesPerSample: plan.MostLaunches()}
		for range plan.Samples {
			s.Seconds = append(s.Seconds, float64(job.Grid[0]))
		}
		if plan.ColdL2 {
			empty := 6e-7
			s.Copies, s.WarmSeconds, s.Unstable = 4, 0.05, true
			s.WithFlush, s.Flush, s.Single, s.EmptyNode, s.Unwatched = []float64{3}, []float64{2}, []float64{4}, &empty, "no NVML"
			s.Readings = []device.Reading{{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 412.5, Celsius: 45, Throttled: []string{"power cap"}}, {}}
		}
		all = append(all, s)
	}
	return all, nil
}

// binding is a machine that takes memory for what it times, as a GPU does.
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

// kernels take an output of 4 bytes and a number.
var kernels = map[string]devicetest.Kernel{
	"fill":   fillOutputs,
	"answer": answerWith(func(n uint32) uint32 { return n + 1 }),
	"pid":    answerWith(func(uint32) uint32 { return uint32(os.Getpid()) }),
	"grow": answerWith(func(n uint32) uint32 {
		memory := make([]byte, 64<<20)
		memory[len(memory)-1] = byte(n)
		return uint32(memory[len(memory)-1])
	}),
	"print": answerWith(func(n uint32) uint32 {
		fmt.Println(strings.Repeat("a kernel prints. ", 10_000))
		fmt.Fprintln(os.Stderr, "and complains")
		return n
	}),
	"hang":     func(*devicetest.Launch) error { sayAndHang(); return nil },
	"exit":     func(*devicetest.Launch) error { os.Exit(7); return nil },
	"give up":  func(*devicetest.Launch) error { os.Exit(0); return nil },
	"orphan":   leaveOrphan,
	"segfault": func(*devicetest.Launch) error { segfault(); return nil },
	"stray":    func(l *devicetest.Launch) error { l.At(l.Pointer(0)+1<<40, 1)[0] = 0; return nil },
	"hopper": func(l *devicetest.Launch) error {
		m := l.Map(2)
		said := fmt.Sprint(l.Job.Cluster, m.Address == l.Pointer(0), m.Map)
		copy(l.At(l.Pointer(0), 128), fmt.Sprintf("%-128s", said))
		return nil
	},
	"refuse": func(*devicetest.Launch) error { return errors.New("the kernel is not in the mood") },
}

// fillOutputs writes every byte of every output.
func fillOutputs(l *devicetest.Launch) error {
	for i, arg := range l.Job.Args {
		if arg.Output > 0 {
			clear(l.At(l.Pointer(i), arg.Output))
		}
	}
	return nil
}

func answerWith(f func(uint32) uint32) devicetest.Kernel {
	return func(l *devicetest.Launch) error {
		binary.LittleEndian.PutUint32(l.At(l.Pointer(0), 4), f(uint32(l.Int(1))))
		return nil
	}
}

// hang blocks the thread, as a driver does that waits for a GPU.
func hang() {
	for {
		_, _ = syscall.Select(0, nil, nil, nil, nil)
	}
}

// leaveOrphan starts a process, says which, and dies.
func leaveOrphan(*devicetest.Launch) error {
	orphan := exec.Command(os.Args[0], childArg, "sleeper")
	if err := orphan.Start(); err != nil {
		return err
	}
	fmt.Println("orphan", orphan.Process.Pid)
	os.Exit(7)
	return nil
}

// sayAndHang tells where it hangs.
func sayAndHang() {
	fmt.Println("hanging in", os.Getpid())
	hang()
}

// segfault dies of the signal itself, which Go's own handler would turn into an exit with a trace.
func segfault() {
	var byDefault [64]byte // a struct sigaction of the kernel's: no handler, no flags, no mask
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGSEGV), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	hang()
}

// talkRubbish says what is no gob, and stays.
func talkRubbish() error {
	if _, err := os.NewFile(responseFD, "responses").WriteString("\x05hello"); err != nil {
		return err
	}
	hang()
	return nil
}

// hearNothing greets its parent and never reads.
func hearNothing() error {
	if err := newSender(os.NewFile(responseFD, "responses"), false).send(&response{}); err != nil {
		return err
	}
	hang()
	return nil
}

// ignoreTheEnd serves well, and stays for a while when it is told to go.
func ignoreTheEnd() error {
	parentGone = func() { time.Sleep(time.Second / 2); os.Exit(0) }
	err := Serve(openMachine)
	time.Sleep(time.Hour)
	return err
}

// beParent is a parent that can be killed: it starts a child of a kind and has it hang.
func beParent() error {
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

// process is whether a process is there and has not ended.
func process(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ") // after the name, which may hold anything
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// eventually waits for what is to become so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s: not so after 5 s", what)
}
