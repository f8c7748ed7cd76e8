package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/ci"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/terminal"
)

// app is what the commands share: the outputs, and the flags that all of them have.
type app struct {
	stdout, stderr io.Writer // each write clears the status line first
	verbatim       io.Writer // standard error without line breaks of attune's own
	line           *terminal.Status
	out            io.Writer      // standard output itself, which may be a terminal
	raw            io.Writer      // standard output with control characters, which stdout leaves out
	written        *checkedWriter // standard output, with its first error
	kernels        *kernelOutput  // what kernels print, on standard error
	colour         terminal.ColourMode

	kernelDir string
	ledgerDir string
	json      bool

	step *ci.Step // of GitHub Actions; nil elsewhere

	started    bool  // a command has begun; earlier errors are usage errors
	noCompiler error // why no compiler was found, for a command that turns out to need one
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "attune",
		Short: "a lab for GPU kernels: build, check, time, compare, profile, record",
		Long:  `attune takes a kernel from its source to a verdict: fits, correct, faster.`,
		Example: `  attune run                   every stage and selection, quickly
  attune init rmsnorm          a kernel of your own, from an example
  attune sim race.json         any PTX kernel on the simulator`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.kernelDir, "kernel", "", "`folder` of the kernel (default: see attune help kernels)")
	flags.StringVar(&a.ledgerDir, "ledger", "", "`folder` of records (default: ATTUNE_LEDGER, or .attune)")
	flags.BoolVar(&a.json, "json", false, "print one JSON document")
	a.colour = terminal.ColourAuto
	flags.Var(&a.colour, "color", "auto (obeys NO_COLOR), always, never")
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.GroupID != "" { // neither help nor completion
			if err := checkEnvironment(); err != nil {
				return err
			}
		}
		a.started = true
		return nil
	}
	root.AddCommand(
		a.initCommand(), a.runCommand(), a.watchCommand(), a.buildCommand(), a.compareCommand(), a.benchCommand(), a.profileCommand(), a.predictCommand(), a.simCommand(), a.execCommand(), a.nvccCommand(),
		a.mutateCommand(), a.accuracyCommand(), a.tuneCommand(), a.listCommand(), a.historyCommand(), a.showCommand(), a.reportCommand(), a.ledgerCommand(),
		a.promoteCommand(), a.rollbackCommand(), a.reproduceCommand(), a.exportCommand(),
		a.serveCommand(), a.workerCommand(), a.fleetCommand(), a.toolchainCommand(), a.doctorCommand(), a.versionCommand(), a.serverCommand(),
	)
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Hidden = true // the command is in the list
	root.SetOut(a.stdout)                        // before addCompletions, which takes it
	root.SetErr(a.stderr)
	addHelp(root)
	a.addCompletions(root)
	return root
}

// exactly requires one argument. The error shows an example.
func exactly(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s, such as `%s %s`, and got %d", cmd.Name(), what, cmd.CommandPath(), example, len(args))
		}
		return nil
	}
}

// oneVariant checks that there is one argument. A kernel with one stage needs none; the others are
// listed by name. what names the argument.
func (a *app) oneVariant(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usual := exactly(what, "stage2")(cmd, args)
		if usual == nil {
			return nil
		}
		kernel, _, err := a.kernel()
		if err != nil || kernel.Declared == nil {
			return usual
		}
		var names []string
		for _, s := range kernel.Stages {
			names = append(names, s.Name)
		}
		if len(args) == 0 && len(names) == 1 {
			return nil
		}
		return fmt.Errorf("%s takes one %s, such as `%s %s`, and got %d; %s has %s",
			cmd.Name(), what, cmd.CommandPath(), names[0], len(args), kernel.Name, strings.Join(names, ", "))
	}
}

// variantArgument is the argument of a command, or the only stage of the kernel.
func (a *app) variantArgument(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	kernel, _, err := a.kernel()
	if err != nil {
		return "", err
	}
	return kernel.Stages[0].Name, nil
}

// noSuchCommand refuses arguments of a command that only has subcommands, and suggests the nearest.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	if nearest := spec.Nearest(args[0], names); nearest != "" {
		return fmt.Errorf("unknown command %q of %s; did you mean %q?", args[0], cmd.CommandPath(), nearest)
	}
	return fmt.Errorf("unknown command %q of %s; there are %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// renamedFlags has the present name of flags that had another.
var renamedFlags = map[string]string{"iters": "rounds", "seed": "seeds", "out": "output"}

// numberFlags say what a flag of a type takes.
var numberFlags = map[string]string{
	"uint64": "a whole number of at least 0", "uint": "a whole number of at least 0", "int": "a whole number", "float64": "a number",
}

// flagError suggests a flag for one that does not exist: its present name, or the nearest. A value
// that is no number gets what the flag takes, instead of the name of a function of Go.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if takes := numberFlags[invalid.GetFlag().Value.Type()]; takes != "" {
			return fmt.Errorf("%swant %s", strings.TrimSuffix(err.Error(), invalid.Unwrap().Error()), takes)
		}
	}
	_, name, found := strings.Cut(err.Error(), "unknown flag: --")
	if !found {
		return err
	}
	if renamed := renamedFlags[name]; cmd.Flags().Lookup(renamed) != nil {
		return fmt.Errorf("%w; it is --%s now", err, renamed)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if nearest := spec.Nearest(name, names); nearest != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, nearest)
	}
	return fmt.Errorf("%w; `%s --help` lists the flags", err, cmd.CommandPath())
}

// newApp returns an app that writes to these outputs.
func newApp(stdout, stderr io.Writer) *app {
	a := &app{out: stdout, written: &checkedWriter{w: stdout}, step: ci.NewStep()}
	if file, ok := stderr.(*os.File); ok {
		a.line = terminal.NewStatus(file)
	}
	a.raw, a.stderr, a.verbatim = a.line.Writer(a.written), a.line.MessageWriter(stderr), a.line.Writer(stderr)
	a.stdout = terminal.PrintableWriter(a.raw, func() bool { return a.screen().Colour })
	a.kernels = &kernelOutput{w: a.stderr, json: &a.json, step: a.step != nil}
	if a.line != nil {
		a.kernels.width = terminal.ScreenOf(stderr, terminal.ColourNever).Width
	}
	return a
}

// checkedWriter remembers the first error of standard output. Tables and help pages do not return
// theirs.
type checkedWriter struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (c *checkedWriter) Write(text []byte) (int, error) {
	n, err := c.w.Write(text)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = cmp.Or(c.err, err)
	}
	return n, err
}

// failed returns the first error.
func (c *checkedWriter) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// status is the status line, or nil if standard error is not a terminal.
func (a *app) status() *terminal.Status { return a.line }

// note writes a line to standard error about something that did not stop the command. With --json
// it is an object.
func (a *app) note(text string) {
	if a.json {
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"message_type": "note", "message": a.withKernel(text)})
		return
	}
	fmt.Fprintf(a.stderr, "attune: %s\n", terminal.Printable(a.withKernel(text)))
}

// suggestedCommand is a command in a message that is about the kernel.
var suggestedCommand = regexp.MustCompile("`attune (run|build|list|profile|mutate|watch|compare|bench)( [^`]*)?`")

// withKernel repeats --kernel in the commands that a message suggests, so that they are about the
// kernel of the command that failed.
func (a *app) withKernel(text string) string {
	if a.kernelDir == "" {
		return text
	}
	return suggestedCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.Contains(command, "--kernel") {
			return command
		}
		return strings.TrimSuffix(command, "`") + " --kernel " + run.ShellWord(filepath.ToSlash(a.kernelDir)) + "`"
	})
}

// screen describes standard output.
func (a *app) screen() terminal.Screen { return terminal.ScreenOf(a.out, a.colour) }

// printJSON writes one document.
func (a *app) printJSON(document any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
