package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"attune/internal/doctor"
	"attune/internal/python"
	"attune/internal/terminal"
	"attune/internal/toolchain"
)

func (a *app) doctorCommand() *cobra.Command {
	var fix bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "report what attune can do on this machine",
		Long: `Doctor reports what attune can do on this machine, and how to enable the rest.
With --fix it installs numpy for references in Python: into the Python that
ATTUNE_PYTHON names, else into one of attune's own in its cache, which the
commands then find. Without --fix it prints the commands.`,
		Example: "  attune doctor\n  attune doctor --fix",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil && !errors.Is(err, toolchain.ErrNoCacheDir) {
				return err
			}
			if fix {
				if err := a.fixNumpy(cmd.Context(), cacheDir); err != nil {
					return err
				}
			}
			child, err := a.child(cudaDevice, defaultLimit)
			if err != nil {
				return err
			}
			abilities := doctor.Examine(cmd.Context(), doctor.Machine{CacheDir: cacheDir, LedgerDir: a.ledgerPath(), Open: opener(child, "")})
			if a.json {
				return a.printJSON(map[string]any{"schema_version": 1, "abilities": abilities})
			}
			abilityTable(abilities).Write(a.stdout, a.screen())
			return nil
		},
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "install numpy where it is missing")
	return cmd
}

// fixNumpy installs numpy, unless references have it.
func (a *app) fixNumpy(ctx context.Context, cacheDir string) error {
	if path, err := python.ForReferences("", cacheDir); err == nil && python.HasNumpy(ctx, path) {
		return nil
	}
	fix, err := doctor.FixNumpy(cacheDir)
	if err != nil {
		return err
	}
	return fix.Run(ctx, a.stderr)
}

// abilityTable has a row for each ability, with the remedy if it is missing.
func abilityTable(abilities []doctor.Ability) terminal.Table {
	t := terminal.Table{Columns: []terminal.Column{{Colour: answerColour}, {Wrap: true, Keep: true}, {Wrap: true, Keep: true}}}
	for _, ability := range abilities {
		answer := "no"
		if ability.OK {
			answer = "yes"
		}
		why := ability.Why
		if ability.Do != "" {
			why += "\nto enable it: " + ability.Do
		}
		t.Rows = append(t.Rows, []string{answer, ability.Name, why})
	}
	return t
}

func answerColour(cell string) terminal.Colour {
	if cell == "yes" {
		return terminal.Green
	}
	return terminal.Yellow
}
