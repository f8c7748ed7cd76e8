package exec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"attune/internal/crash"
	"attune/internal/sim/mma"
)

// Options are the options of a run.
type Options struct {
	Arch     string // of the device, such as sm_90a
	Library  string // folder of the client library
	Compiler string // nvcc, for programs that compile; may be empty
	Folder   string // that source files are named relative to
	Memory   int    // limit of the simulation of a process, in bytes
	Checks   bool
	Tensor   mma.Mode
	Only     []string // patterns of kernels that are checked; empty for all
	Skip     []string // patterns of kernels that run without checkers
	Sample   int      // launches of each kernel that are checked; 0 for all
	Suppress *Suppressions

	SkipRepeats bool // of launches that would change nothing

	Report   func(*Found)        // a new finding
	Line     func(text string)   // something that the user should know
	Progress func(Progress)      // a launch begins or ends
	Crash    func(*crash.Panic)  // a defect of the simulator
	Command  func(*osexec.Cmd)   // prepares the program before it starts; may be nil
	Describe func(*Found) string // the text of a finding; nil if programs do not ask for reports
}

// Progress is the state of a run.
type Progress struct {
	Kernel           string
	Launch           int // from 1
	WarpInstructions uint64
	Seconds          float64 // of the launch that has ended
	Running          bool
}

// Server runs the kernels of a program.
type Server struct {
	options Options
	mu      sync.Mutex // of what follows
	outcome Outcome
	found   map[string]*Found
	said    once
	reports []report

	forgotten int // reports before those
}

// once remembers texts.
type once struct{ seen map[string]bool }

// first reports whether a text is new.
func (o *once) first(text string) bool {
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	if o.seen[text] {
		return false
	}
	o.seen[text] = true
	return true
}

// say prints a line, once.
func (s *Server) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(text)
}

func (s *Server) sayLocked(text string) {
	s.keep(report{Line: text})
	if s.said.first(text) && s.options.Line != nil {
		s.options.Line(text)
	}
}

// unsupported notes an entry point that attune does not have.
func (s *Server) unsupported(name string) {
	s.mu.Lock()
	if !slices.Contains(s.outcome.Unsupported, name) {
		s.outcome.Unsupported = append(s.outcome.Unsupported, name)
	}
	s.mu.Unlock()
	if name == exportTable {
		s.say("the program is linked with NVIDIA's runtime library, which runs with NVIDIA's driver alone; link it with -cudart shared, or build it with `attune nvcc`")
		return
	}
	s.say("%s is not supported by attune exec", name)
}

// exportTable is the call by which NVIDIA's runtime library asks for what only NVIDIA's driver has.
const exportTable = "cuGetExportTable"

func (s *Server) crashed(p *crash.Panic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashedLocked(p)
}

func (s *Server) crashedLocked(p *crash.Panic) {
	s.outcome.refuse("", p.Error())
	if s.options.Crash != nil {
		s.options.Crash(p)
	}
}

// Variables of the environment for the client: the socket, and nvcc.
const (
	socketVariable   = "ATTUNE_EXEC_SOCKET"
	compilerVariable = "ATTUNE_EXEC_NVCC"
)

// Run runs a program to its end, and all processes that it starts.
func Run(ctx context.Context, o Options, command []string) (*Outcome, error) {
	s := newServer(o)
	socket, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	err = s.program(ctx, socket, command)
	end()
	return &s.outcome, err
}

// accept serves every process that connects.
func (s *Server) accept(ctx context.Context, listener *net.UnixListener, sessions *sync.WaitGroup) {
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		sessions.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if err := s.serve(ctx, c); err != nil {
				s.say("%v", err)
			}
		})
	}
}

// program runs the program and notes how it ended. A program with a library that attune does not run is
// not started.
func (s *Server) program(ctx context.Context, socket string, command []string) error {
	path, err := osexec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	if refused := refusedNeeds(path); len(refused) > 0 {
		s.mu.Lock()
		s.outcome.Unsupported = append(s.outcome.Unsupported, refused...)
		s.mu.Unlock()
		for _, why := range refused {
			s.say("%s %s", command[0], why)
		}
		return nil
	}
	cmd := osexec.CommandContext(ctx, path, command[1:]...)
	cmd.Args[0] = command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	for name, value := range s.environment(socket) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if s.options.Command != nil {
		s.options.Command(cmd)
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*osexec.ExitError](err); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcome.Exit = exit.ExitCode()
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			s.outcome.Exit, s.outcome.Signal = 128+int(w.Signal()), w.Signal().String()
		}
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	return nil
}

// environment has the folder of the client before all others.
func (s *Server) environment(socket string) map[string]string {
	folders := []string{s.options.Library}
	if given := os.Getenv("LD_LIBRARY_PATH"); given != "" {
		folders = append(folders, given)
	}
	environment := map[string]string{socketVariable: socket, "LD_LIBRARY_PATH": strings.Join(folders, ":")}
	if s.options.Compiler != "" {
		environment[compilerVariable] = s.options.Compiler
	}
	return environment
}
