// Attune builds FP8 attention kernels for NVIDIA GPUs and proves them: does a variant fit the chip, is it right, is it really faster.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	os.Exit(attune(os.Args[1:], os.Stdout, os.Stderr))
}

// attune is the whole program, and returns its exit code.
func attune(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{stdout: stdout, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	a.json = a.json || slices.Contains(args, "--json") // which a wrong flag before it has kept from being read
	code := a.exitCode(ctx, err)
	if code == exitNoCompiler && a.noCompiler != nil {
		err = fmt.Errorf("%w (%w)", err, a.noCompiler)
	}
	if err != nil && code != 0 && !a.silent(err) {
		a.printError(err, code)
	}
	return code
}

// printError writes the error: as a line for people, as an object for programs.
func (a *app) printError(err error, code int) {
	if a.json {
		// Nothing can be done about a standard error that cannot be written.
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"message_type": "exit_error", "code": code, "message": err.Error()})
		return
	}
	fmt.Fprintf(a.stderr, "attune: %v\n", err)
}
