package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Every help page fits a screen of 60 lines and 80 columns. The page of a command has an example
// and says where the exit codes are; the codes themselves are on one page only.
func TestHelpFitsTheScreen(t *testing.T) {
	const maxLines = 60
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		out, errs, code := printed(append(path, "--help")...)
		if code != exitOK {
			t.Errorf("%s: exit code %d: %s", cmd.CommandPath(), code, errs)
		}
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(lines) > maxLines {
			t.Errorf("%s --help has %d lines, want at most %d", cmd.CommandPath(), len(lines), maxLines)
		}
		for i, line := range lines {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "        ")); n > helpWidth {
				t.Errorf("%s --help: line %d has %d columns: %s", cmd.CommandPath(), i+1, n, line)
			}
		}
		if isTopic(cmd) {
			return
		}
		for _, want := range []string{"\nUsage:\n", "\nExamples:\n  attune", "\n" + exitLine + "\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s --help does not have %q", cmd.CommandPath(), want)
			}
		}
		if strings.Contains(out, "130") {
			t.Errorf("%s --help lists the exit codes", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).rootCommand())
}

// Every command of the program is in a group, except those about the program itself.
func TestCommandsAreGrouped(t *testing.T) {
	for _, cmd := range (&app{}).rootCommand().Commands() {
		switch {
		case isTopic(cmd), cmd.Hidden, cmd.Name() == "completion", cmd.Name() == "help", cmd.Name() == "version":
		case cmd.GroupID == "":
			t.Errorf("%s is in no group", cmd.Name())
		}
	}
	out, _, _ := printed("--help")
	at := -1
	for _, title := range []string{"Start:", "Measure:", "Inspect:", "Records and fleets:", "Topics "} {
		next := strings.Index(out, "\n"+title)
		if next <= at {
			t.Errorf("%q is missing or in the wrong place:\n%s", title, out)
		}
		at = next
	}
}
