// Attune is a lab for GPU kernels. It builds a kernel variant, checks that it fits the chip and
// that it is correct, measures whether it is faster, and records the evidence.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"attune/internal/crash"
	"attune/internal/ledger"
	"attune/internal/terminal"
)

func main() {
	os.Exit(attune(os.Args[1:], os.Stdout, os.Stderr))
}

// attune runs the program and returns its exit code.
func attune(args []string, stdout, stderr io.Writer) int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup lets a run outlive its terminal
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not end by itself
	a := newApp(stdout, stderr)
	defer a.status().Clear()
	return a.execute(ctx, a.rootCommand(), args)
}

// execute runs a command and returns the exit code.
func (a *app) execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := recovered(ctx, root)
	a.kernels.flush()
	a.json = a.json || !runsProgram(args) && slices.Contains(args, "--json") // an unknown flag before it ends the parsing
	code := a.exitCode(ctx, err)
	if lost := a.written.failed(); lost != nil && code != exitInterrupted {
		if errors.Is(lost, syscall.EPIPE) && !a.json {
			return code // the reader, such as head, wants no more; a document must be complete
		}
		code = exitFailure
		if err == nil || a.silent(err) || strings.Contains(err.Error(), lost.Error()) { // nothing else is wrong
			err = fmt.Errorf("the output is incomplete: %w", lost)
		}
	}
	if code == exitNoCompiler && a.noCompiler != nil {
		err = fmt.Errorf("%w (%w)", err, a.noCompiler)
	}
	if crashed, ok := errors.AsType[*crash.Panic](err); ok {
		err = fmt.Errorf("%w; %s", err, reportCrash(crashed, args))
	}
	if err != nil && code != 0 && !a.silent(err) {
		a.printError(err, code)
	}
	a.reportStep(err, code, commandName(root, args))
	return code
}

// commandName is the command that arguments name, such as attune run.
func commandName(root *cobra.Command, args []string) string {
	cmd, _, err := root.Find(args)
	if err != nil {
		cmd = root
	}
	return cmd.CommandPath()
}

// recovered runs a command. A panic of the command is its error.
func recovered(ctx context.Context, root *cobra.Command) (err error) {
	defer crash.Catch(&err, func() string { return "the command" })
	return root.ExecuteContext(ctx)
}

// reportCrash writes the report of a panic, with the files that the command was reading, and says
// where it is.
func reportCrash(crashed *crash.Panic, args []string, files ...string) string {
	g, _ := builtFrom()
	facts := []string{
		fmt.Sprintf("attune %s, commit %s, dirty %v", version(), cmp.Or(g.SHA, "not recorded"), g.Dirty),
		fmt.Sprintf("%s %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		fmt.Sprintf("command: attune %q", args),
	}
	path, err := crashed.Report(os.TempDir(), facts, files...)
	if err != nil {
		return fmt.Sprintf("the report of it could not be written: %v", err)
	}
	return "the report of it is " + path
}

// withRemedy is the text of an error. That of a damaged record gets what to do about it.
func withRemedy(err error) string {
	damaged, ok := errors.AsType[*ledger.DamageError](err)
	if !ok || remedy.MatchString(err.Error()) {
		return err.Error()
	}
	return fmt.Sprintf("%v; `attune ledger verify` checks every file: restore damaged ones from git or a copy, or run `attune ledger remove %s`", err, damaged.ID)
}

// printError writes an error as a line, or with --json as an object.
func (a *app) printError(err error, code int) {
	text := a.withKernel(withRemedy(err))
	if !a.json { // which escapes them
		text = terminal.Printable(text)
	}
	if a.json {
		// Without standard error there is nowhere left to report to.
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"message_type": "exit_error", "code": code, "message": text})
		return
	}
	text = "attune: " + text + "\n"
	if quoting := interface{ Quoted() string }(nil); errors.As(err, &quoting) && quoting.Quoted() != "" {
		if before, after, found := strings.Cut(text, quoting.Quoted()+"\n"); found {
			fmt.Fprint(a.stderr, before)
			fmt.Fprintln(a.verbatim, quoting.Quoted())
			text = after
		}
	}
	fmt.Fprint(a.stderr, text)
}
