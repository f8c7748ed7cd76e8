package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Options describe a process.
type Options struct {
	Command []string // path and arguments
	Dir     string   // working directory; empty for the current one
	Env     []string // besides the environment of attune
	// Input is standard input. With an input, requests are on descriptor 3 and responses on
	// descriptor 4, so that nothing which a library prints is mistaken for a response. Without one
	// they are on standard input and output.
	Input   io.Reader
	Printed io.Writer     // gets what the process prints; may be nil
	Limit   time.Duration // of each response
	Memory  int64         // limit in bytes; 0 for none
	MaxLine int           // bytes of a response
}

// closeGrace is the time limit for a process to exit by itself.
const closeGrace = 5 * time.Second

// Process is a running program. Its methods are called one at a time.
type Process struct {
	family  *Family
	options Options
	printed *tail
	in      *os.File
	out     *bufio.Reader
	pipes   []io.Closer
	exited  chan struct{}
	exitErr error
	lost    bool
	late    bool
	excess  *LimitError
}

// Start starts a process.
func Start(o Options) (*Process, error) {
	p := &Process{options: o, printed: &tail{next: o.Printed}, exited: make(chan struct{})}
	requestsOut, requestsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	responsesOut, responsesIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, requestsOut.Close(), requestsIn.Close())
	}
	p.in, p.out, p.pipes = requestsIn, bufio.NewReader(responsesOut), []io.Closer{requestsIn, responsesOut}
	p.family, err = StartFamily(p.command(requestsOut, responsesIn), Limits{Memory: o.Memory})
	// The parent must not keep the child's pipe ends open, or it would not see EOF when the child
	// dies.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		p.closePipes()
		return nil, err
	}
	go func() {
		p.exitErr = p.family.Wait()
		close(p.exited)
	}()
	return p, nil
}

// command describes the program, which gets its ends of the pipes.
func (p *Process) command(requests, responses *os.File) *exec.Cmd {
	o := p.options
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Dir, cmd.Env = o.Dir, append(os.Environ(), o.Env...)
	cmd.Stderr = p.printed
	if o.Input == nil {
		cmd.Stdin, cmd.Stdout = requests, responses
	} else {
		cmd.Stdin, cmd.Stdout = o.Input, p.printed
		cmd.ExtraFiles = []*os.File{requests, responses}
	}
	return cmd
}

// Lost reports whether the process cannot be used any more.
func (p *Process) Lost() bool { return p.lost }

// Excess is the limit that the process was lost to, or nil.
func (p *Process) Excess() *LimitError { return p.excess }

// AllowMemory changes the limit of memory.
func (p *Process) AllowMemory(bytes int64) { p.family.AllowMemory(bytes) }

// Late reports whether the process was lost because it exceeded the time limit.
func (p *Process) Late() bool { return p.late }

// received is a line from the process.
type received struct {
	line []byte
	err  error
}

// Exchange sends a request, which ends in a newline, and returns the line of the response. The error
// is that of a cancelled context, or a predicate of which the process is the subject, such as
// "exited (exit status 1)". The process is then lost.
func (p *Process) Exchange(ctx context.Context, request []byte) ([]byte, error) {
	responses := make(chan received, 1)
	go func() {
		var got received
		if _, got.err = p.in.Write(request); got.err == nil {
			got.line, got.err = readLine(p.out, p.options.MaxLine)
		}
		responses <- got
	}()
	limit := time.NewTimer(p.options.Limit)
	defer limit.Stop()
	select {
	case got := <-responses:
		return p.response(got)
	case <-p.exited:
		// A process that it started may keep the pipe open.
		select {
		case got := <-responses:
			return p.response(got)
		case <-time.After(time.Second):
			p.Lose()
			return nil, p.death(io.EOF)
		}
	case <-limit.C:
		p.late = true
		p.Lose()
		return nil, fmt.Errorf("did not respond within %s and was killed", p.options.Limit)
	case <-ctx.Done():
		p.Lose()
		return nil, ctx.Err()
	}
}

func (p *Process) response(got received) ([]byte, error) {
	if got.err != nil {
		err := p.death(got.err)
		p.Lose()
		return nil, err
	}
	return got.line, nil
}

// errLongLine is the error of a response above the size limit.
type errLongLine int

func (e errLongLine) Error() string {
	return fmt.Sprintf("sent a response of more than %d bytes", int(e))
}

// readLine reads a line of at most limit bytes.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errLongLine(limit)
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
	if long := errLongLine(0); errors.As(pipeErr, &long) {
		return pipeErr
	}
	select {
	case <-p.exited:
	case <-time.After(closeGrace):
		return fmt.Errorf("closed its pipe: %w", pipeErr)
	}
	if limit, ok := errors.AsType[*LimitError](p.exitErr); ok {
		p.excess = limit
		return limit
	}
	text := "exited (exit status 0)"
	if errors.Is(p.exitErr, errSupervisorKilled) {
		text = "was killed: " + p.exitErr.Error()
	} else if p.exitErr != nil {
		text = "exited (" + p.exitErr.Error() + ")"
	}
	if last := p.printed.lastLine(); last != "" {
		text += ": " + last
	}
	return errors.New(text)
}

// Lose marks the process as lost and kills it.
func (p *Process) Lose() {
	p.lost = true
	p.family.Kill()
}

// Close closes the pipes, which makes the process exit, and kills it after the grace time.
func (p *Process) Close() error {
	p.closePipes()
	select {
	case <-p.exited:
	case <-time.After(closeGrace):
		p.family.Kill()
		<-p.exited
	}
	return nil
}

func (p *Process) closePipes() {
	for _, pipe := range p.pipes {
		pipe.Close()
	}
}
