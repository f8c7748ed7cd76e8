package python

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options describe a process.
type Options struct {
	Python  string        // path, from Find
	Program string        // its text
	Dir     string        // working directory
	Env     []string      // besides the environment of attune
	Limit   time.Duration // of each response
}

const (
	maxLineBytes = 4 << 20 // of a response
	// closeGrace is the time limit for a process to exit by itself.
	closeGrace = 5 * time.Second
)

// Process is a Python process. Its methods are called one at a time.
type Process struct {
	options Options
	cmd     *exec.Cmd
	printed *tail
	in      *os.File
	out     *bufio.Reader
	pipes   []io.Closer
	exited  chan struct{}
	exitErr error
	last    int // ID of the last request
	lost    bool
	late    bool
}

// Start starts a process. The error is an *Error.
func Start(o Options) (*Process, error) {
	p := &Process{options: o, printed: &tail{}, exited: make(chan struct{})}
	if err := p.launch(); err != nil {
		return nil, &Error{fmt.Sprintf("%s does not start: %v", o.Python, err), UseAnother}
	}
	return p, nil
}

// launch starts the process, with the program on standard input and the pipes as descriptors 3 and
// 4.
func (p *Process) launch() error {
	requestsOut, requestsIn, err := os.Pipe()
	if err != nil {
		return err
	}
	responsesOut, responsesIn, err := os.Pipe()
	if err != nil {
		return errors.Join(err, requestsOut.Close(), requestsIn.Close())
	}
	p.in, p.out, p.pipes = requestsIn, bufio.NewReader(responsesOut), []io.Closer{requestsIn, responsesOut}
	p.cmd = exec.Command(p.options.Python, "-")
	p.cmd.Dir, p.cmd.Env = p.options.Dir, append(os.Environ(), p.options.Env...)
	p.cmd.Stdin = strings.NewReader(p.options.Program)
	p.cmd.Stdout, p.cmd.Stderr = p.printed, p.printed
	p.cmd.ExtraFiles = []*os.File{requestsOut, responsesIn}
	p.cmd.WaitDelay = time.Second
	// A process group of its own, so that kill also ends the processes that it starts.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = p.cmd.Start()
	// The parent must not keep the child's pipe ends open, or it would not see EOF when the child
	// dies.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		p.closePipes()
		return err
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		p.killGroup() // processes that it started may still run
		close(p.exited)
	}()
	return nil
}

// Lost reports whether the process cannot be used any more.
func (p *Process) Lost() bool { return p.lost }

// Late reports whether the process was lost because it exceeded the time limit.
func (p *Process) Late() bool { return p.late }

// received is a line from the process.
type received struct {
	line []byte
	err  error
}

// Call sends a request, which is encoded as a JSON object and gets an "id", and decodes the response
// into reply, which may be nil. The error is an *Error, or that of a cancelled context. A response
// with an "error" is an *Error that leaves the process usable.
func (p *Process) Call(ctx context.Context, request, reply any) error {
	if p.lost {
		return &Error{"its Python was lost to an earlier failure", ""}
	}
	p.last++
	line := encode(request, p.last)
	responses := make(chan received, 1)
	go func() {
		var got received
		if _, got.err = p.in.Write(line); got.err == nil {
			got.line, got.err = readLine(p.out)
		}
		responses <- got
	}()
	limit := time.NewTimer(p.options.Limit)
	defer limit.Stop()
	select {
	case got := <-responses:
		return p.decode(got, reply)
	case <-p.exited:
		// A process that it started may keep the pipe open.
		select {
		case got := <-responses:
			return p.decode(got, reply)
		case <-time.After(time.Second):
			return p.lose(p.death(io.EOF))
		}
	case <-limit.C:
		p.lost, p.late = true, true
		p.kill()
		return &Error{fmt.Sprintf("%s did not respond within %s and was killed", p.options.Python, p.options.Limit), ""}
	case <-ctx.Done():
		p.lost = true
		p.kill()
		return ctx.Err()
	}
}

// decode reads the response to the last request.
func (p *Process) decode(got received, reply any) error {
	if got.err != nil {
		return p.lose(p.death(got.err))
	}
	failed, err := decode(got.line, p.last, reply)
	if err != nil {
		return p.lose(err)
	}
	if failed != nil {
		return failed
	}
	return nil
}

var errLongLine = fmt.Errorf("sent a response of more than %d bytes", maxLineBytes)

// readLine reads a line of at most maxLineBytes.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLineBytes:
			return nil, errLongLine
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// death is the error of a process whose pipe failed: how it exited, and the last line that it
// printed.
func (p *Process) death(pipeErr error) error {
	if errors.Is(pipeErr, errLongLine) {
		return pipeErr
	}
	select {
	case <-p.exited:
	case <-time.After(closeGrace):
		return fmt.Errorf("closed its pipe: %w", pipeErr)
	}
	how := "exit status 0"
	if p.exitErr != nil {
		how = p.exitErr.Error()
	}
	text := "exited (" + how + ")"
	if last := p.printed.lastLine(); last != "" {
		text += ": " + last
	}
	return errors.New(text)
}

// lose marks the process as lost and kills it.
func (p *Process) lose(why error) error {
	p.lost = true
	p.kill()
	return &Error{fmt.Sprintf("%s %v", filepath.Base(p.options.Python), why), ""}
}

// kill kills the process and those that it started, unless it has exited: its process ID may then
// belong to another process.
func (p *Process) kill() {
	select {
	case <-p.exited:
	default:
		p.killGroup()
	}
}

func (p *Process) killGroup() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// Close closes the pipes, which makes the process exit, and kills it after the grace time.
func (p *Process) Close() error {
	p.closePipes()
	select {
	case <-p.exited:
	case <-time.After(closeGrace):
		p.kill()
		<-p.exited
	}
	return nil
}

func (p *Process) closePipes() {
	for _, pipe := range p.pipes {
		pipe.Close()
	}
}
