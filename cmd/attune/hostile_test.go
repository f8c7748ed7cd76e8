//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"attune/internal/child/childtest"
	"attune/internal/rotate"
	"attune/internal/toolchain"
)

// hostileAll also runs the attacks that need the compiler, Python, or more than a second: `make hostile`.
var hostileAll = flag.Bool("hostile", false, "run all hostile inputs, and print the memory and the time of each")

// Limits of one attack: for the command and every process that it starts, together.
const (
	hostileMemory = 1 << 30
	hostileTime   = 60 * time.Second
	hostileOutput = 16 << 20
)

// secret is the content of a file outside of everything that a command may read. Compilers quote the
// line of an error, so that it is an error in every language.
const secret = "SECRET_5e1f0a77 is not for you\n"

// attack is one hostile input. Its command must end within the limits, with this exit code and this
// text, and must neither read nor write outside, nor lose a finished record.
type attack struct {
	kind string // input, file, record, request, proposer, kernel or flag
	name string
	exit int
	want string // in the output
	// stage prepares the attack in its folder and returns the arguments of the command.
	stage func(a *arena) []string
	with  attackOptions
}

// attackOptions are what few attacks have.
type attackOptions struct {
	compiler  bool          // needs NVIDIA's compiler and numpy; runs with -hostile only
	slow      bool          // takes more than a second; runs with -hostile only
	damages   bool          // the ledger is damaged by the attack: it need not verify
	interrupt time.Duration // Ctrl-C comes after this time; the command must then end within 5 s
	stdin     string
	env       []string                             // WORK stands for the working directory
	requests  func(a *arena, address string) error // of a server; the command is ended by Ctrl-C behind them
}

// arena is the place of one attack: a folder to work in, a ledger with a finished record in it, and a
// folder outside that nothing may touch.
type arena struct {
	t       *testing.T
	dir     string // the working directory of the command
	outside string
	record  string // path of the finished record
}

// at is the path of a file of the working directory.
func (a *arena) at(name string) string { return filepath.Join(a.dir, name) }

// write writes a file below the working directory.
func (a *arena) write(name, text string) string {
	a.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(a.at(name)), 0o755), os.WriteFile(a.at(name), []byte(text), 0o644)); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// relative is the path of a file outside from the working directory.
func (a *arena) relative(name string) string {
	a.t.Helper()
	path, err := filepath.Rel(a.dir, filepath.Join(a.outside, name))
	if err != nil {
		a.t.Fatal(err)
	}
	return path
}

// program writes an executable file.
func (a *arena) program(name, text string) string {
	a.t.Helper()
	a.must(os.MkdirAll(filepath.Dir(a.at(name)), 0o755))
	childtest.Program(a.t, a.at(name), text)
	return a.at(name)
}

// must fails the test if an attack cannot be prepared.
func (a *arena) must(errs ...error) {
	a.t.Helper()
	if err := errors.Join(errs...); err != nil {
		a.t.Fatal(err)
	}
}

// pipe makes a named pipe that nobody writes to, in place of a file.
func (a *arena) pipe(name string) string {
	a.t.Helper()
	_ = os.RemoveAll(a.at(name)) // it may not be there
	a.must(os.MkdirAll(filepath.Dir(a.at(name)), 0o755), syscall.Mkfifo(a.at(name), 0o644))
	return name
}

// link makes a symbolic link in place of a file.
func (a *arena) link(name, target string) string {
	a.t.Helper()
	_ = os.RemoveAll(a.at(name)) // it may not be there
	a.must(os.MkdirAll(filepath.Dir(a.at(name)), 0o755), os.Symlink(target, a.at(name)))
	return name
}

// folder makes a folder in place of a file.
func (a *arena) folder(name string) string {
	a.t.Helper()
	_ = os.RemoveAll(a.at(name)) // it may not be there
	a.must(os.MkdirAll(a.at(name), 0o755))
	return name
}

// sparse extends a file to a size by a hole, which takes no place on the disk.
func (a *arena) sparse(name, start string, size int64) string {
	a.t.Helper()
	a.write(name, start)
	a.must(os.Truncate(a.at(name), size))
	return name
}

// change replaces text in a file of the working directory.
func (a *arena) change(name string, oldNew ...string) {
	a.t.Helper()
	text, err := os.ReadFile(a.at(name))
	a.must(err)
	changed := strings.NewReplacer(oldNew...).Replace(string(text))
	if changed == string(text) {
		a.t.Fatalf("%s has no %q", name, oldNew[0])
	}
	a.must(os.Remove(a.at(name)))
	a.write(name, changed)
}

// attacks is the list of hostile inputs.
func attacks() []attack {
	return slices.Concat(kernelFileAttacks(), arrayAttacks(), sourceAttacks(), caseAttacks(), ptxAttacks(), recordingAttacks(), recordAttacks(),
		requestAttacks(), proposerAttacks(), flagAttacks())
}

// Every hostile input ends with its own message: within 1 GB and 60 s, without a read or a write
// outside, and without the loss of a finished record. One input of four runs in each turn.
func TestHostile(t *testing.T) {
	all := attacks()
	names := map[string]bool{}
	for _, a := range all {
		if names[a.kind+a.name] {
			t.Errorf("two attacks are named %s", a.name)
		}
		names[a.kind+a.name] = true
	}
	if len(all) < 200 {
		t.Errorf("the list has %d attacks, want 200", len(all))
	}
	finished := finishedLedger(t)
	var mutex sync.Mutex
	var table []cost
	t.Run("list", func(t *testing.T) {
		for i, a := range all {
			if (a.with.compiler || a.with.slow) && !*hostileAll {
				continue
			}
			t.Run(a.kind+": "+a.name, func(t *testing.T) {
				if !*hostileAll {
					rotate.Skip(t, i, 4)
				}
				t.Parallel()
				u := a.run(t, finished)
				mutex.Lock()
				defer mutex.Unlock()
				table = append(table, u)
			})
		}
	})
	if len(table) > 0 && testing.Verbose() {
		printCosts(t, table)
	}
}

// cost is what an attack took.
type cost struct {
	attack  string
	memory  int64
	seconds float64
	exit    int
	output  string
}

// printCosts prints the attacks, with the most expensive first.
func printCosts(t *testing.T, table []cost) {
	slices.SortFunc(table, func(a, b cost) int { return int((b.memory - a.memory) >> 10) })
	var text strings.Builder
	worst := 0.0
	for _, u := range table {
		worst = max(worst, u.seconds)
		first, _, _ := strings.Cut(u.output, "\n")
		fmt.Fprintf(&text, "%5d MB %5.1f s  exit %3d  %s | %.150s\n", u.memory>>20, u.seconds, u.exit, u.attack, first)
	}
	t.Logf("%d attacks; most memory %d MB, longest %.1f s\n%s", len(table), table[0].memory>>20, worst, text.String())
}

// finishedLedger is a ledger with one finished run, from PTX that is part of the program.
func finishedLedger(t *testing.T) string {
	t.Helper()
	cmd, stderr := command(t, "run", "stage2", "--device", "sim", "--arch", "sm_80", "--shapes", "1x1x32x64", "--seeds", "0")
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr)
	}
	return filepath.Join(cmd.Dir, ".attune")
}

// run runs an attack and checks what every attack must leave as it is.
func (k attack) run(t *testing.T, finished string) cost {
	t.Helper()
	root := t.TempDir()
	a := &arena{t: t, dir: filepath.Join(root, "work"), outside: filepath.Join(root, "outside")}
	a.must(os.CopyFS(a.at(".attune"), os.DirFS(finished)), os.MkdirAll(a.outside, 0o755), os.MkdirAll(filepath.Join(root, "tmp"), 0o755),
		os.WriteFile(filepath.Join(a.outside, "secret.txt"), []byte(secret), 0o644))
	records, err := filepath.Glob(a.at(".attune/runs/*"))
	a.must(err)
	a.record = records[0]
	args := k.stage(a)
	if k.with.compiler {
		cacheDir, err := toolchain.CacheDir()
		a.must(err, os.MkdirAll(filepath.Join(root, "cache"), 0o755), os.Symlink(filepath.Join(cacheDir, "toolchains"), filepath.Join(root, "cache", "toolchains")))
	}
	outside, kept := tree(t, a.outside), recordsIn(t, a.at(".attune"))

	cmd := exec.Command("attune", args...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "ATTUNE_CACHE="+filepath.Join(root, "cache"), "ATTUNE_LEDGER=", "ATTUNE_TOKEN=", "HOME="+filepath.Join(root, "home"),
		"TMPDIR="+filepath.Join(root, "tmp"), "COLUMNS=300", "TERM=xterm")
	for _, setting := range k.with.env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(setting, "WORK", a.dir))
	}
	cmd.Stdin = strings.NewReader(k.with.stdin)
	u, text := k.measured(a, cmd)

	if u.exit != k.exit || !strings.Contains(text, k.want) {
		t.Errorf("exit code %d, want %d, and %q in\n%.2000s", u.exit, k.exit, k.want, text)
	}
	if u.memory > hostileMemory || u.seconds > hostileTime.Seconds() {
		t.Errorf("%d MB, %.1f s", u.memory>>20, u.seconds)
	}
	if strings.Contains(text, "SECRET_5e1f0a77") {
		t.Errorf("a file outside was read:\n%.2000s", text)
	}
	if strings.ContainsAny(text, "\x1b\x07\u009b\u202e") || strings.Contains(text, "goroutine ") {
		t.Errorf("control characters or a stack trace: %.2000q", text)
	}
	if now := tree(t, a.outside); !maps.Equal(now, outside) {
		t.Errorf("files outside changed: %v, before %v", now, outside)
	}
	if left, err := os.ReadDir(filepath.Join(root, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
	if left := processesOf(root); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	now := recordsIn(t, a.at(".attune"))
	for name, sum := range kept {
		if now[name] != sum {
			t.Errorf("the finished record has lost %s", name)
		}
	}
	if !k.with.damages {
		a.verifyLedger(cmd.Env)
	}
	return u
}

// verifyLedger runs `attune ledger verify`.
func (a *arena) verifyLedger(env []string) {
	a.t.Helper()
	verify := exec.Command("attune", "ledger", "verify")
	verify.Dir, verify.Env = a.dir, env
	if out, err := verify.CombinedOutput(); err != nil {
		a.t.Errorf("ledger verify: %v, %.1000s", err, out)
	}
}

// measured runs the command of an attack under the limits.
func (k attack) measured(a *arena, cmd *exec.Cmd) (cost, string) {
	a.t.Helper()
	out := &boundedOutput{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	start := time.Now()
	a.must(cmd.Start())
	watched := watch(cmd.Process.Pid)
	limit := time.AfterFunc(hostileTime+5*time.Second, func() {
		a.t.Errorf("it did not end within %s", hostileTime)
		killTree(cmd.Process.Pid)
	})
	defer limit.Stop()
	if k.with.requests != nil {
		if err := k.serve(a, cmd, out); err != nil {
			a.t.Error(err)
		}
	}
	if k.with.interrupt > 0 {
		time.Sleep(k.with.interrupt)
		sent := time.Now()
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		defer func() {
			if took := time.Since(sent); took > 10*time.Second {
				a.t.Errorf("Ctrl-C took %s", took)
			}
		}()
	}
	err := cmd.Wait()
	u := cost{attack: k.kind + ": " + k.name, seconds: time.Since(start).Seconds(), memory: watched(), output: out.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.t.Errorf("%v", err)
	}
	u.exit = cmd.ProcessState.ExitCode()
	if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil {
		a.t.Errorf("processes of the group %d are left", cmd.Process.Pid)
	}
	return u, out.String()
}

// serve sends the requests of an attack to the server, and ends it by Ctrl-C.
func (k attack) serve(a *arena, cmd *exec.Cmd, out *boundedOutput) error {
	address := ""
	for end := time.Now().Add(20 * time.Second); address == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, rest, found := strings.Cut(out.String(), "http://"); found {
			address, _, _ = strings.Cut(rest, "/")
		}
	}
	if address == "" {
		return errors.Join(errors.New("the server does not start"), cmd.Process.Kill())
	}
	return errors.Join(k.with.requests(a, address), cmd.Process.Signal(os.Interrupt))
}

// boundedOutput keeps what a command prints. One that prints without end is an error.
type boundedOutput struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *boundedOutput) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.text.Len()+len(text) > hostileOutput {
		return 0, errors.New("the command prints without end")
	}
	return b.text.Write(text)
}

func (b *boundedOutput) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// watch measures the memory of a process and all that it has started, until the result is asked for.
func watch(pid int) func() int64 {
	ctx, cancel := context.WithCancel(context.Background())
	most := make(chan int64)
	go func() {
		var top int64
		for ctx.Err() == nil {
			var sum int64
			for i, p := range family(pid) {
				now, peak := residentBytes(p)
				sum += now
				if i == 0 {
					top = max(top, peak)
				}
			}
			top = max(top, sum)
			time.Sleep(20 * time.Millisecond)
		}
		most <- top
	}()
	return func() int64 { cancel(); return <-most }
}

// family lists a process and its descendants.
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i])) // the pattern is right
		for _, list := range lists {
			text, _ := os.ReadFile(list) // it may have ended
			for _, child := range strings.Fields(string(text)) {
				id, _ := strconv.Atoi(child) // the kernel writes numbers
				all = append(all, id)
			}
		}
	}
	return all
}

// residentBytes is the memory of a process, now and at most since it started its program.
func residentBytes(pid int) (now, peak int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); name {
		case "RssAnon", "RssShmem":
			now += kilobytes << 10
		case "VmHWM":
			peak = kilobytes << 10
		}
	}
	return now, peak
}

// processesOf lists the processes with a folder in their environment, in whatever group or session. Those
// of a command that has just ended may need a moment to end.
func processesOf(root string) (left []string) {
	for range 50 {
		left = nil
		environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
		for _, path := range environments {
			text, _ := os.ReadFile(path) // it may have ended, or belong to another user
			if strings.Contains(string(text), root) {
				name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // it may have ended
				left = append(left, strings.ReplaceAll(string(name), "\x00", " "))
			}
		}
		if left == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return left
}

// killTree kills a process and its descendants.
func killTree(pid int) {
	for _, p := range family(pid) {
		_ = syscall.Kill(p, syscall.SIGKILL) // it may have ended
	}
}

// tree is the content of a folder: the hash of each file, and the target of each link.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case d.Type().IsRegular():
			all[name], err = digest(path)
			return err
		case d.Type()&fs.ModeSymlink != 0:
			all[name], err = os.Readlink(path)
			return err
		}
		all[name] = d.Type().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// digest is the hash of the first megabyte of a file, with its size: sparse files have gigabytes.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.CopyN(hash, f, min(info.Size(), 1<<20))
	return fmt.Sprintf("%d %x", info.Size(), hash.Sum(nil)), err
}

// recordsIn is the content of the finished runs of a ledger.
func recordsIn(t *testing.T, ledger string) map[string]string {
	t.Helper()
	if info, err := os.Stat(filepath.Join(ledger, "runs")); err != nil || !info.IsDir() {
		return nil
	}
	return tree(t, filepath.Join(ledger, "runs"))
}
