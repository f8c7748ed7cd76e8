// Attune is a lab for GPU kernels. It builds a kernel variant, checks that it fits the chip and
// that it is correct, measures whether it is faster, and records the evidence.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	os.Exit(attune(os.Args[1:], os.Stdout, os.Stderr))
}

// attune runs the program and returns its exit code.
func attune(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(stdout, stderr)
	defer a.status().Clear()
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	a.json = a.json || slices.Contains(args, "--json") // an unknown flag before it ends the parsing
	code := a.exitCode(ctx, err)
	if lost := a.written.failed(); lost != nil && code != exitInterrupted {
		code = exitFailure
		if errors.Is(lost, syscall.EPIPE) {
			return code // the reader, such as head, wants no more
		}
		if err == nil || a.silent(err) || strings.Contains(err.Error(), lost.Error()) { // nothing else is wrong
			err = fmt.Errorf("the output is incomplete: %w", lost)
		}
	}
	if code == exitNoCompiler && a.noCompiler != nil {
		err = fmt.Errorf("%w (%w)", err, a.noCompiler)
	}
	if err != nil && code != 0 && !a.silent(err) {
		a.printError(err, code)
	}
	return code
}

// printError writes an error as a line, or with --json as an object.
func (a *app) printError(err error, code int) {
	if a.json {
		// Without standard error there is nowhere left to report to.
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"message_type": "exit_error", "code": code, "message": err.Error()})
		return
	}
	fmt.Fprintf(a.stderr, "attune: %v\n", err)
}
