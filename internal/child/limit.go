package child

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultMemory is the limit of memory for a program of the user that needs no more for its inputs.
// With it a command stays below 1 GB. numpy takes 30 MB, and PyTorch some 300.
const DefaultMemory = 640 << 20

// Limits bound a program and all processes that it starts, together. Zero is no limit.
type Limits struct {
	Memory    int64 // bytes
	Processor time.Duration
	Address   int64 // bytes of the address space of each process; libraries reserve much and use little
	File      int64 // bytes of each file that is written
}

// EnvironmentMemory is the limit of memory that a variable of the environment sets, or else the
// default.
func EnvironmentMemory(variable string, otherwise int64) (int64, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	number, unit := strings.TrimRight(text, "GM"), int64(1<<20)
	if strings.HasSuffix(text, "G") {
		unit = 1 << 30
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || len(text) != len(number)+1 {
		return 0, fmt.Errorf("%s=%s: want a size such as 4G or 2048M", variable, text)
	}
	return n * unit, nil
}

// MachineMemory is the memory of this machine in bytes.
func MachineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt64
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// LimitError is the error of a program that has reached a limit. One of them is set. The text is a
// predicate of which the program is the subject.
type LimitError struct {
	Memory    int64
	Processor time.Duration
	Time      time.Duration // by the clock
}

func (e *LimitError) Error() string {
	switch {
	case e.Memory > 0:
		return fmt.Sprintf("needs more than %d MB of memory", e.Memory>>20)
	case e.Time > 0:
		return fmt.Sprintf("did not answer within %s", e.Time)
	}
	return fmt.Sprintf("needs more than %s of processor time", e.Processor)
}

// AllowMemory changes the limit of memory.
func (f *Family) AllowMemory(bytes int64) { f.memory.Store(bytes) }

// watch kills the family when it reaches a limit, until the context is done. A family that waits, as a
// reference between two instances does, is looked at less often: it takes no memory.
func (f *Family) watch(ctx context.Context) {
	const shortest, longest = 10 * time.Millisecond, 40 * time.Millisecond
	var before time.Duration
	for interval := shortest; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		started := time.Now()
		processor, exceeded := f.check()
		if exceeded != nil {
			f.exceeded.Store(exceeded)
			f.Kill()
			return
		}
		if processor == before {
			interval = min(2*interval, longest)
		} else {
			interval = shortest
		}
		interval = max(interval, 4*time.Since(started)) // the processes may have been stopped meanwhile
		before = processor
	}
}

// check returns the processor time of the family, and the limit that it is above, or nil.
func (f *Family) check() (processor time.Duration, exceeded *LimitError) {
	supervisor := f.supervisor.Process.Pid
	all := descendants(supervisor)
	_, processor = processorTime(supervisor) // of the processes that have ended
	var memory int64
	for _, pid := range all {
		f.limits.apply(pid) // one that was started before its parent had limits has none
		memory += resident(pid)
		own, waited := processorTime(pid)
		processor += own + waited
	}
	most := f.memory.Load()
	if most > 0 && memory > most {
		// Stopped, because they could take hundreds of megabytes while they are counted.
		signalAll(all, syscall.SIGSTOP)
		if memory = proportional(all); memory <= most {
			signalAll(all, syscall.SIGCONT)
		}
	}
	f.peak.Store(max(f.peak.Load(), memory))
	switch {
	case most > 0 && memory > most:
		return processor, &LimitError{Memory: most}
	case f.limits.Processor > 0 && processor > f.limits.Processor:
		return processor, &LimitError{Processor: f.limits.Processor}
	}
	return processor, nil
}

func signalAll(all []int, s syscall.Signal) {
	for _, pid := range all {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}

// apply sets the limits that the system enforces. The address space is the limit for one large request,
// between two looks at the memory.
func (l Limits) apply(pid int) {
	set := func(resource int, most int64) {
		limit := unix.Rlimit{Cur: uint64(most), Max: uint64(most)}
		_ = unix.Prlimit(pid, resource, &limit, nil) // a stricter limit stays; the process may have ended
	}
	set(unix.RLIMIT_CORE, 0)
	if l.Address > 0 {
		set(unix.RLIMIT_AS, l.Address)
	}
	if l.File > 0 {
		set(unix.RLIMIT_FSIZE, l.File)
	}
}

// resident is the memory of a process, with what it shares with others: pages of a fork that neither
// has written, and shared memory. It is without files.
func resident(pid int) int64 {
	return sumFields(fmt.Sprintf("/proc/%d/status", pid), slices.Concat(unshared, []string{"RssAnon", "RssShmem"})...)
}

// unshared are the fields of memory that is in no other: page tables, which sparse mappings make large,
// and huge pages of a pool.
var unshared = []string{"VmPTE", "HugetlbPages"}

// proportional is the memory of processes, with what several share counted once. It takes
// milliseconds for a gigabyte.
func proportional(all []int) (sum int64) {
	for _, pid := range all {
		exact := sumFields(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss_Anon", "Pss_Shmem")
		if exact == 0 { // before Linux 5.4
			sum += resident(pid)
			continue
		}
		sum += exact + sumFields(fmt.Sprintf("/proc/%d/status", pid), unshared...)
	}
	return sum
}

// sumFields adds up fields in kilobytes of a file of /proc. What cannot be read has ended.
func sumFields(path string, names ...string) (sum int64) {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		for _, wanted := range names {
			if name == wanted {
				kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64) // the system writes numbers
				sum += kilobytes << 10
			}
		}
	}
	return sum
}

// clockTick is the unit of processor times in /proc. It is the same on all Linux systems.
const clockTick = 10 * time.Millisecond

// processorTime is the processor time of a process, and of those that it has waited for.
func processorTime(pid int) (own, waited time.Duration) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))                 // it may have ended
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // a name may have any character
	if len(fields) < 15 {
		return 0, 0
	}
	ticks := func(field int) time.Duration {
		n, _ := strconv.Atoi(fields[field]) // the system writes numbers
		return time.Duration(n) * clockTick
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}
