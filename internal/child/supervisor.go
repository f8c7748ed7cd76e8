package child

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorName is argument 0 of a supervisor: this program, started again beside a foreign one.
//
// A supervisor is the subreaper of the program, so that every process that the program starts stays
// below it: one that has left its group or its session, and one whose parent has ended. It kills all
// of them when the program has ended, when attune wants it, and when attune itself is gone.
const supervisorName = "attune-supervisor"

// A supervisor is needed wherever a program is started, in tests of other packages too. So it is not
// left to each main function. It stays on the main thread: the program ends with the thread that has
// started it.
func init() {
	if len(os.Args) > 3 && os.Args[0] == supervisorName {
		supervise(os.Args[1], os.Args[2], os.Args[3:])
		os.Exit(0)
	}
}

// began is the first message of a supervisor. The second is the syscall.WaitStatus of the program.
type began struct {
	Errno int32 // why the program did not start
	PID   int32
}

// unkillable is how long a supervisor tries to end processes. Those of another user stay.
const unkillable = 2 * time.Second

// killInterval is the time between two rounds of killing.
const killInterval = 2 * time.Millisecond

// supervise runs a program, which gets the descriptors below count. The next one is readable as soon
// as the program shall end. Messages are written to the one after it.
func supervise(count, path string, args []string) {
	files := descriptors(count)
	program, hold, messages := files[:len(files)-2], files[len(files)-2], files[len(files)-1]
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4
	// The program gets no handlers, as it would get ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	process, err := os.StartProcess(path, args, &os.ProcAttr{Files: program, Sys: Alone(&syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL, // should the program kill its supervisor
	})})
	for _, f := range program {
		f.Close() // the program alone decides when its pipes are closed
	}
	if err != nil {
		send(messages, began{Errno: int32(errno(err))})
		return
	}
	send(messages, began{PID: int32(process.Pid)})

	ended, none := make(chan syscall.WaitStatus, 1), make(chan struct{})
	go reap(process.Pid, ended, none)
	released := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, hold) // an error ends it as well
		close(released)
	}()
	status := syscall.WaitStatus(syscall.SIGKILL)
	select {
	case status = <-ended:
		killDescendants(none)
	case <-released:
		killDescendants(none)
		select {
		case status = <-ended:
		default:
		}
	}
	send(messages, uint32(status))
}

// descriptors are the files of a supervisor. Its own two are not passed on.
func descriptors(count string) []*os.File {
	n, _ := strconv.Atoi(count) // written by StartFamily
	files := make([]*os.File, n+2)
	for i := range files {
		if i >= n {
			unix.CloseOnExec(i)
		}
		files[i] = os.NewFile(uintptr(i), "descriptor "+strconv.Itoa(i))
	}
	return files
}

func send(to io.Writer, message any) {
	_ = binary.Write(to, binary.LittleEndian, message) // attune may be gone
}

// reap collects ended processes until there are none.
func reap(program int, ended chan<- syscall.WaitStatus, none chan<- struct{}) {
	defer close(none)
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return
		case pid == program:
			ended <- status
		}
	}
}

// killDescendants kills all processes below this one until there are none. One that starts others
// meanwhile is killed before them or finds its end in the next round.
func killDescendants(none <-chan struct{}) {
	limit := time.After(unkillable)
	for {
		signalAll(descendants(os.Getpid()), syscall.SIGKILL)
		select {
		case <-none:
			return
		case <-limit:
			return
		case <-time.After(killInterval):
		}
	}
}

// descendants lists the processes that a process has started, and those that they have started.
func descendants(pid int) []int {
	var all []int
	for _, child := range children(pid) {
		all = append(append(all, child), descendants(child)...)
	}
	return all
}

// children lists the processes whose parent a process is. A list belongs to the thread that has started
// them. What cannot be read has ended.
func children(pid int) []int {
	folder := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer tasks.Close()
	threads, _ := tasks.Readdirnames(-1)
	var all []int
	for _, thread := range threads {
		text, _ := os.ReadFile(folder + "/" + thread + "/children")
		for _, id := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(id) // the system writes numbers
			all = append(all, child)
		}
	}
	return all
}
