package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/spec"
	"attune/internal/terminal"
)

// app is what the verbs share: where they write, and the flags that all of them have.
type app struct {
	stdout, stderr io.Writer

	kernelDir string
	ledgerDir string
	json      bool

	started    bool  // a verb has begun; errors before are usage errors
	noCompiler error // why no compiler was found, for whoever turns out to need one
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "attune",
		Short: "FP8 attention kernels for NVIDIA GPUs, and the lab that proves them",
		Long: `attune takes a kernel variant from source to verdict: does it fit the chip, is it right, is it really faster.

A variant is a stage, or a stage with knobs turned: stage2, stage2+TILE_N=32+USE_XOR_SWIZZLE=1.
A shape is a name from the spec or BxHxSxD: mission, 1x8x512x64, 1x8x512x64:causal, 1x8x128x64:kv=512, 1x8x512x64:kvheads=2.
` + exitText,
		Example: `  attune run                                    every shipped stage, on the GPU or else on the simulator
  attune run stage2 --shapes mission --seeds 0  one stage, one shape
  attune build stage2 --arch sm_89 --emit ptx,cubin,log -o out
  attune sim race.json                          any PTX kernel on the simulator, with all checkers
  attune doctor                                 what this machine can do`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.kernelDir, "kernel", "", "folder of a kernel with its kernel.toml (default: kernels/sdpa here, else the one in the program)")
	flags.StringVar(&a.ledgerDir, "ledger", "", "folder of the ledger (default: ATTUNE_LEDGER, else .attune)")
	flags.BoolVar(&a.json, "json", false, "print one JSON document")
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRun = func(*cobra.Command, []string) { a.started = true }
	root.AddCommand(
		a.runCommand(), a.buildCommand(), a.compareCommand(), a.benchCommand(), a.profileCommand(), a.simCommand(), a.mutateCommand(), a.accuracyCommand(), a.listCommand(), a.historyCommand(), a.showCommand(), a.ledgerCommand(),
		a.promoteCommand(), a.rollbackCommand(), a.reproduceCommand(),
		a.toolchainCommand(), a.doctorCommand(), a.versionCommand(), a.deviceCommand(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, verb := range root.Commands() {
		describe(verb)
	}
	return root
}

// exactly asks for one argument, and says so with an example.
func exactly(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one %s, such as `%s %s`, and got %d", cmd.Name(), what, cmd.CommandPath(), example, len(args))
		}
		return nil
	}
}

// oneOfItsVerbs refuses a verb that is not under this one, and offers the nearest.
func oneOfItsVerbs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, under := range cmd.Commands() {
		names = append(names, under.Name())
	}
	if nearest := spec.Nearest(args[0], names); nearest != "" {
		return fmt.Errorf("unknown verb %q of %s; did you mean %q?", args[0], cmd.CommandPath(), nearest)
	}
	return fmt.Errorf("unknown verb %q of %s; there are %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// flagError offers the nearest flag to one that is not there.
func flagError(cmd *cobra.Command, err error) error {
	_, name, found := strings.Cut(err.Error(), "unknown flag: --")
	if !found {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if nearest := spec.Nearest(name, names); nearest != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, nearest)
	}
	return fmt.Errorf("%w; `%s --help` lists the flags", err, cmd.CommandPath())
}

// describe completes the help of a verb and of the verbs under it: an example where it has none, and the exit codes.
func describe(verb *cobra.Command) {
	if verb.Long == "" {
		verb.Long = strings.ToUpper(verb.Short[:1]) + verb.Short[1:] + "."
	}
	verb.Long = strings.TrimSpace(verb.Long) + "\n" + exitText
	if verb.Example == "" {
		verb.Example = "  " + verb.CommandPath()
	}
	for _, under := range verb.Commands() {
		describe(under)
	}
}

// status is the status line, if standard error is a terminal.
func (a *app) status() *terminal.Status {
	if file, ok := a.stderr.(*os.File); ok {
		return terminal.NewStatus(file)
	}
	return nil
}

// printJSON writes one document.
func (a *app) printJSON(document any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
