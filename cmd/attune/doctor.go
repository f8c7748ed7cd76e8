package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"attune/internal/doctor"
	"attune/internal/toolchain"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "report what attune can do on this machine",
		Example: "  attune doctor",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil {
				return err
			}
			open, err := a.opener("cuda", defaultLimit, "")
			if err != nil {
				return err
			}
			abilities := doctor.Examine(cmd.Context(), doctor.Machine{CacheDir: cacheDir, LedgerDir: a.ledgerPath(), Open: open})
			if a.json {
				return a.printJSON(map[string]any{"schema_version": 1, "abilities": abilities})
			}
			for _, ability := range abilities {
				answer := "no "
				if ability.OK {
					answer = "yes"
				}
				fmt.Fprintf(a.stdout, "%s  %-40s %s\n", answer, ability.Name, ability.Why)
				if ability.Do != "" {
					fmt.Fprintf(a.stdout, "%45s to enable it: %s\n", "", ability.Do)
				}
			}
			return nil
		},
	}
}
