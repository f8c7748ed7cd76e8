package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/ledger"
)

func (a *app) rollbackCommand() *cobra.Command {
	var arch, changelog string
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "make the champion before the present one the champion again",
		Long: `Rollback returns to the champion before the present one, and a rollback after that to the one before that. Nothing is lost: the rollback is a
record like the promotions. The run that the earlier champion was promoted on must still be in the ledger. With no champion, or none before
it, the exit code is 1.`,
		Example: "  attune rollback --arch sm_90\n  attune rollback --arch sm_90 --changelog",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.rollback(cmd.Context(), arch, changelog) },
	}
	cmd.Flags().StringVar(&arch, "arch", "", "architecture of the device (default: the one that has a champion, where it is the only one)")
	changelogFlag(cmd, &changelog)
	return cmd
}

func (a *app) rollback(ctx context.Context, arch, changelog string) error {
	kernel, _, err := a.kernel()
	if err != nil {
		return err
	}
	kept, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	all, err := kept.Champions(ctx)
	if err != nil {
		return err
	}
	if arch, err = chooseArch(all, kernel.Name, arch); err != nil {
		return err
	}
	if err := readable(changelog); err != nil {
		return err
	}
	c, err := kept.Rollback(ctx, kernel.Name, arch, version())
	if err != nil {
		return interruptedWith(ctx, err, "nothing was rolled back")
	}
	r, err := readRun(ctx, kept, c.Run)
	if err != nil {
		return err
	}
	return a.printChange(c, r, changelog, map[string]any{})
}

// chooseArch is the architecture asked for, if it has a champion of the kernel, or else the only one that has.
func chooseArch(all ledger.Champions, kernel, asked string) (string, error) {
	var archs []string
	for _, c := range all.Now() {
		if c.Kernel == kernel {
			archs = append(archs, c.Arch)
		}
	}
	switch {
	case len(archs) == 0:
		return "", fmt.Errorf("%s has no champion; `attune promote RUN` makes one", kernel)
	case slices.Contains(archs, asked):
		return asked, nil
	case asked != "":
		return "", usageError{fmt.Errorf("--arch %q: there is a champion of %s on %s", asked, kernel, strings.Join(archs, ", "))}
	case len(archs) == 1:
		return archs[0], nil
	}
	return "", usageError{fmt.Errorf("several architectures have a champion of %s; give one with --arch: %s", kernel, strings.Join(archs, ", "))}
}
