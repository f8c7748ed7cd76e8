package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/catalog"
	"attune/internal/ledger"
)

func (a *app) rollbackCommand() *cobra.Command {
	var arch, changelog string
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "return to the champion before the present one",
		Long: `Rollback returns to the champion before the present one; a second rollback
returns to the one before that. It adds a record like a promotion, so nothing is
lost. The run that the earlier champion was promoted on must still be in the
ledger. With no champion, or none before it, the exit code is 1.`,
		Example: "  attune rollback --arch sm_90\n  attune rollback --arch sm_90 --changelog",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.rollback(cmd.Context(), arch, changelog) },
	}
	cmd.Flags().StringVar(&arch, "arch", "", "architecture of the device (default: the only one with a champion)")
	changelogFlag(cmd, &changelog)
	return cmd
}

func (a *app) rollback(ctx context.Context, arch, changelog string) error {
	kernel, _, err := a.kernel()
	if err != nil {
		return err
	}
	kept, err := a.openRecordingLedger(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	all, err := kept.Champions(ctx)
	if err != nil {
		return err
	}
	if arch, err = championArch(all, kernel.Name, arch); err != nil {
		return err
	}
	before, err := readChangelog(changelog)
	if err != nil {
		return err
	}
	c, err := kept.Rollback(ctx, kernel.Name, arch, version())
	if err != nil {
		return interruptedWith(ctx, err, "nothing was rolled back")
	}
	r, err := catalog.Run(ctx, kept, c.Run)
	if err != nil {
		return err
	}
	return a.printChange(c, r, changelog, before, "")
}

// championArch returns the requested architecture, or the only one with a champion of the kernel.
func championArch(all ledger.Champions, kernel, requested string) (string, error) {
	var archs []string
	for _, c := range all.Now() {
		if c.Kernel == kernel {
			archs = append(archs, c.Arch)
		}
	}
	switch {
	case len(archs) == 0:
		return "", fmt.Errorf("%s has no champion; `attune promote RUN` makes one", kernel)
	case slices.Contains(archs, requested):
		return requested, nil
	case requested == "" && len(archs) == 1:
		return archs[0], nil
	}
	return "", usageError{fmt.Errorf("--arch %q: %s has a champion on %s; give one of these", requested, kernel, strings.Join(archs, ", "))}
}
