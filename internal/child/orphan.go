package child

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of the processes that a killed supervisor leaves.
var adopt = sync.OnceFunc(func() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4
})

// adoptable reports whether orphans can be told from processes that os/exec waits for, by the
// descriptors that it keeps of them.
func adoptable(p *os.Process) bool {
	return p.WithHandle(func(uintptr) {}) == nil // since Linux 5.4
}

// endOrphans kills adopted processes until there are none. One that starts others meanwhile leaves
// them to the next round.
func endOrphans() {
	for end := time.Now().Add(unkillable); killOrphans() && time.Now().Before(end); {
		time.Sleep(killInterval)
	}
}

// killOrphans kills adopted processes with all below them, collects those that have ended, and reports
// whether there were any.
func killOrphans() bool {
	all := orphans()
	for _, pid := range all {
		signalAll(append(descendants(pid), pid), syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // it may need longer to end
	}
	return len(all) > 0
}

// orphans are the children of this process that it has not started: os/exec has a descriptor of every
// process that it will wait for. All programs that may leave orphans run in families, and a family
// whose supervisor lives keeps its own.
func orphans() []int {
	syscall.ForkLock.RLock() // no child is between its start and its descriptor
	defer syscall.ForkLock.RUnlock()
	awaited := describedProcesses() // before the list of children, from which ended ones disappear first
	return slices.DeleteFunc(children(os.Getpid()), func(pid int) bool { return awaited[pid] })
}

// describedProcesses are the processes that this one has a descriptor of.
func describedProcesses() map[int]bool {
	all := map[int]bool{}
	files, _ := filepath.Glob("/proc/self/fdinfo/*") // the pattern is right
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may be closed
		for line := range bytes.Lines(text) {
			if id, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				pid, _ := strconv.Atoi(string(bytes.TrimSpace(id))) // the system writes numbers
				all[pid] = true
			}
		}
	}
	return all
}
