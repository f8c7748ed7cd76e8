package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/trial"
)

// keptHere are the flags that a command does not pass on: they name what belongs to this machine.
var keptHere = []string{
	"fleet", "creds", "class", "workers", "in-flight", "kernel", "ledger", "device", "json", "junit", "sarif", "html", "benchstat", "color", "progress",
	"verbose", "python", "quick", "markdown", "output", "part",
}

// passed are the flags of the command line for the same command on another machine.
func (o *spreadOptions) passed() []string {
	var args []string
	o.set.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(keptHere, flag.Name) {
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return args
}

// partFlag has a command do a part of its work. It is for workers of a fleet.
func partFlag(f *pflag.FlagSet, part *string, of string) {
	f.StringVar(part, "part", "", "only part `I/N` of the "+of+", from 0/N")
	_ = f.MarkHidden("part")
}

// checkPart is an error unless the part is empty, or one that this machine can do.
func checkPart(part string, spread spreadOptions) error {
	if i, n := partOf(part); part != "" && (n < 1 || i < 0 || i >= n || spread.asked()) {
		return fmt.Errorf("--part %s: want I/N, such as 0/4, on this machine", part)
	}
	return nil
}

// partOf are the numbers of --part.
func partOf(text string) (number, of int) {
	if n, err := fmt.Sscanf(text, "%d/%d", &number, &of); err != nil || n != 2 {
		return 0, 0
	}
	return number, of
}

// commands hands commands to a fleet, several at a time, and takes the
// outcomes as they come. Each has its record in the ledger before it is taken.
func (s *spread) commands(ctx context.Context, a *app, kept *ledger.Ledger, all []trial.Command, take func(i int, found *trial.Outcome) error) error {
	setting, err := s.setting(ctx, a)
	if err != nil {
		return err
	}
	type answer struct {
		i     int
		found *trial.Outcome
		err   error
	}
	answers := make(chan answer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	once := ""
	if s.facts.Kind != simDevice { // a repeated measurement is another one
		once = ledger.NewID(time.Now(), "measurement")
	}
	runner := &trial.Commands{Fleet: s.fleet, Class: s.class, Setting: setting}
	for i, one := range all {
		one.Once = once
		go func() {
			found, err := runner.Do(ctx, one)
			select {
			case answers <- answer{i, found, err}:
			case <-ctx.Done():
			}
		}()
	}
	for range all {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case one := <-answers:
			if one.err == nil && kept != nil && len(one.found.Record) > 0 {
				one.err = s.keep(ctx, kept, one.found)
			}
			if one.err == nil {
				one.err = take(one.i, one.found)
			}
			if one.err != nil {
				return one.err
			}
		}
	}
	return nil
}

// keep imports the record of a command, which only this machine writes into its ledger.
func (s *spread) keep(ctx context.Context, kept *ledger.Ledger, found *trial.Outcome) error {
	folder, err := os.MkdirTemp("", "attune-record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := found.Write(ctx, s.fleet.Objects(), folder); err != nil {
		return err
	}
	_, err = kept.Import(ctx, folder)
	return err
}

// commandLimits of a child on a worker.
const (
	maxCommandOutput = 64 << 20
	maxCommandErrors = 64 << 10
	interruptGrace   = 10 * time.Second
)

// commandRunner runs commands on a worker: in a child, with a ledger of its own, and without the fleet's
// key in its environment.
func (a *app) commandRunner(device string, reference referenceOptions) func(context.Context, string, trial.Command, func()) (*trial.Outcome, error) {
	return func(ctx context.Context, folder string, c trial.Command, progress func()) (*trial.Outcome, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		home, err := os.MkdirTemp("", "attune-job-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(home)
		kept := filepath.Join(home, "ledger")
		args := append(slices.Clone(c.Args), "--ledger", kept)
		if !c.Text {
			args = append(args, "--json")
		}
		if folder != "" {
			args = append(args, "--kernel", folder)
		}
		switch c.Args[0] {
		case "run":
			args = append(args, "--device", device, "--progress")
		case "bench", "compare":
			args = append(args, "--device", device)
		}
		if reference.python != "" {
			args = append(args, "--python", reference.python)
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Dir = home
		cmd.Env = withoutKeys(os.Environ())
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		cmd.WaitDelay = interruptGrace
		out, errs := &limitedBuffer{most: maxCommandOutput}, &progressLines{progress: progress}
		cmd.Stdout, cmd.Stderr = out, errs
		stop := watchProcessor(cmd, progress)
		err = cmd.Run()
		stop()
		output := out.Bytes()
		if c.Text && len(output) > 0 {
			output, _ = json.Marshal(out.String()) // a string always has a form in JSON
		}
		return commandOutcome(ctx, err, output, errs.last(), kept)
	}
}

// withoutKeys is an environment without the fleet's address and key.
func withoutKeys(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(one string) bool {
		name, _, _ := strings.Cut(one, "=")
		return name == fleetVariable || name == credsVariable || name == tokenVariable || name == "ATTUNE_LEDGER"
	})
}

// commandOutcome is what a command has left. An exit without a document is a failure of this machine,
// unless the command line is wrong.
func commandOutcome(ctx context.Context, failure error, output []byte, errs, kept string) (*trial.Outcome, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if failure != nil && !errors.As(failure, &exit) {
		return nil, &fleet.MachineError{Err: failure}
	}
	found := &trial.Outcome{Errors: errs}
	if exit != nil {
		found.Exit = exit.ExitCode()
	}
	if json.Valid(output) {
		found.Output = output
	}
	switch {
	case found.Exit == exitUsage:
		return nil, lab.RequestError(errs)
	case found.Exit == exitInterrupted: // by somebody on this machine: its document says nothing about the kernel
		return nil, &fleet.MachineError{Err: errors.New("the command was interrupted on the worker's machine")}
	case found.Output == nil:
		return nil, &fleet.MachineError{Err: fmt.Errorf("the command ended with exit code %d: %s", found.Exit, errs)}
	}
	files, err := recordFiles(kept)
	found.Files = files
	return found, err
}

// recordFiles are the files of a small ledger, without its index.
func recordFiles(kept string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(kept, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), "index.sqlite") || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		short, err := filepath.Rel(kept, name)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(short)], err = os.ReadFile(name)
		return err
	})
	return files, err
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	if room := b.most - b.Len(); len(text) <= room {
		b.Buffer.Write(text)
	} else {
		b.Buffer.Write(text[:max(0, room)])
	}
	return len(text), nil
}

// progressLines takes the lines that a command writes to standard error: progress, and messages.
type progressLines struct {
	progress func()
	kept     limitedBuffer
}

func (p *progressLines) Write(text []byte) (int, error) {
	p.progress()
	p.kept.most = maxCommandErrors
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(`"message_type":"progress"`)) {
			p.kept.Write(append(bytes.Clone(lines.Bytes()), '\n'))
		}
	}
	return len(text), nil
}

// last is the last message, of a JSON line or a plain one.
func (p *progressLines) last() string {
	lines := strings.Split(strings.TrimSpace(p.kept.String()), "\n")
	text := lines[len(lines)-1]
	var message struct{ Message string }
	if json.Unmarshal([]byte(text), &message) == nil && message.Message != "" {
		return message.Message
	}
	return strings.TrimPrefix(text, "attune: ")
}

// watchProcessor calls progress while a command uses the processor, as one that only computes does.
func watchProcessor(cmd *exec.Cmd, progress func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(5 * time.Second)
		defer ticker.Stop()
		before := ""
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if cmd.Process == nil {
				continue
			}
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)) // without it the messages tell
			_, rest, _ := strings.Cut(string(text), ") ")
			if fields := strings.Fields(rest); len(fields) > 15 {
				if now := strings.Join(fields[11:15], " "); now != before {
					before = now
					progress()
				}
			}
		}
	}()
	return func() { close(done) }
}

// one has a single command done by one worker, such as a measurement whose parts belong together.
func (s *spread) one(ctx context.Context, a *app, kept *ledger.Ledger, c trial.Command) (found *trial.Outcome, err error) {
	a.status().Set("%s on the class %s", c.Args[0], s.class)
	defer a.status().Clear()
	err = s.commands(ctx, a, kept, []trial.Command{c}, func(_ int, o *trial.Outcome) error {
		found = o
		return nil
	})
	return found, err
}

// failed is the error of a command that ended with an exit code on a worker.
func failed(o *trial.Outcome) error {
	if o.Exit == 0 {
		return nil
	}
	return gateError{o.Exit}
}
