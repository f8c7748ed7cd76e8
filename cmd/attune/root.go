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

	started bool // a verb has begun; errors before are usage errors
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "attune",
		Short: "FP8 attention kernels for NVIDIA GPUs, and the lab that proves them",
		Long: `attune takes a kernel variant from source to verdict: does it fit the chip, is it right, is it really faster.

A variant is a stage, or a stage with knobs turned: stage2, stage2+TILE_N=32+USE_XOR_SWIZZLE=1.
A shape is a name from the spec or BxHxSxD: mission, 1x8x512x64, 1x8x512x64:causal, 1x8x128x64:kv=512.
` + exitText,
		Example: `  attune run                                    every shipped stage, on the GPU if there is one
  attune run stage2 --shapes mission --seeds 0  one stage, one shape
  attune build stage2 --arch sm_89 --emit ptx,cubin,log -o out
  attune doctor                                 what this machine can do`,
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
		a.runCommand(), a.buildCommand(), a.listCommand(), a.historyCommand(), a.showCommand(), a.ledgerCommand(),
		a.toolchainCommand(), a.doctorCommand(), a.versionCommand(), a.deviceCommand(),
	)
	for _, verb := range root.Commands() {
		describeExits(verb)
	}
	return root
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
	return err
}

// describeExits puts the exit codes into the help of a verb and of the verbs under it.
func describeExits(verb *cobra.Command) {
	if verb.Long == "" {
		verb.Long = strings.ToUpper(verb.Short[:1]) + verb.Short[1:] + "."
	}
	verb.Long += "\n" + exitText
	for _, under := range verb.Commands() {
		describeExits(under)
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
