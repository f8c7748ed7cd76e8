package main

import (
	"errors"

	"github.com/spf13/cobra"

	"attune/internal/doctor"
	"attune/internal/terminal"
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
			if err != nil && !errors.Is(err, toolchain.ErrNoCacheDir) {
				return err
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
