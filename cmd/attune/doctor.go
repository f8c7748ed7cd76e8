package main

import (
	"context"
	"errors"
	"strings"

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
			if cmd.Context().Err() != nil {
				return errors.New("interrupted")
			}
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
	if path, err := python.ForReferences("", cacheDir); err == nil {
		found, _ := python.HasNumpy(ctx, path) // one that does not work is replaced
		if found || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fix, err := doctor.FixNumpy(cacheDir)
	if err != nil {
		return err
	}
	return fix.Run(ctx, a.stderr)
}

// abilityTable has a row for each ability, with the remedy if it is missing. Its commands are below the
// row, each on a line of its own, which is never broken.
func abilityTable(abilities []doctor.Ability) terminal.Table {
	t := terminal.Table{Columns: []terminal.Column{{Colour: answerColour}, {Wrap: true, Keep: true}, {Wrap: true, Keep: true}}}
	for _, ability := range abilities {
		answer := "no"
		if ability.OK {
			answer = "yes"
		}
		why, rest := ability.Why, ability.Do
		var notes []string
		for i, command := range ability.Commands {
			before, after, _ := strings.Cut(rest, command)
			if before = strings.Trim(before, ",; "); i > 0 && before != "" {
				notes = append(notes, before)
			}
			notes, rest = append(notes, "`"+command+"`"), strings.TrimLeft(after, ",; ")
		}
		switch {
		case len(notes) > 0 && rest != "":
			why, notes = why+"\nto enable it:", append(notes, rest)
		case len(notes) > 0:
			why += "\nto enable it:"
		case rest != "":
			why += "\nto enable it: " + rest
		}
		t.Rows, t.Notes = append(t.Rows, []string{answer, ability.Name, why}), append(t.Notes, notes)
	}
	return t
}

func answerColour(cell string) terminal.Colour {
	if cell == "yes" {
		return terminal.Green
	}
	return terminal.Yellow
}
