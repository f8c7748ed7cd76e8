package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/spec"
	"attune/internal/terminal"
)

func (a *app) listCommand() *cobra.Command {
	var prove proveOptions
	cmd := &cobra.Command{
		Use:   "list [stages|selections|knobs|shapes|champions]",
		Short: "list stages, selections, knobs, shapes and champions",
		Long: `List shows what the kernel has: stages, selections (tables that choose a variant
for each shape), knobs, constraints and shapes. Champions are in the ledger:
list champions shows the one of each architecture, its run and the verdict of
that run.

With --prove it shows whether the knobs reach the machine code. Each value of
each knob is built as the only change to each stage, and the code is compared
with the stage's:

  alive        the code differs
  equal        the code is the same: in this stage the value has no effect
  not allowed  a constraint forbids it
  broken       it does not compile
  own          the stage has the value already

A value that no stage allows is tried on other variants. A knob that never
changes the code is dead. A dead knob, or a value that does not compile, is a
failure. The first proof takes minutes; builds are cached.`,
		Example:   "  attune list\n  attune list knobs\n  attune list champions --ledger results\n  attune list knobs --prove --arch sm_89",
		Args:      listArgs,
		ValidArgs: listKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := prove.check(args); err != nil {
				return usageError{err}
			}
			if len(args) == 1 && args[0] == "champions" {
				return a.listChampions(cmd.Context())
			}
			kernel, folder, err := a.kernel()
			if err != nil {
				return err
			}
			if prove.requested {
				return a.prove(cmd.Context(), prove, kernel, folder)
			}
			wants := func(what string) bool { return len(args) == 0 || args[0] == what }
			if a.json {
				return a.printJSON(listing(kernel, wants))
			}
			if wants("stages") {
				a.listStages(kernel)
			}
			if wants("selections") {
				a.listSelections(kernel)
			}
			if wants("knobs") {
				a.listKnobs(kernel)
			}
			if wants("shapes") {
				a.listShapes(kernel)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&prove.requested, "prove", false, "with knobs: build each value and show whether it changes the machine code")
	f.StringVar(&prove.arch, "arch", "", "with --prove: build for this architecture (default: the newest of each stage)")
	return cmd
}

var listKinds = []string{"stages", "selections", "knobs", "shapes", "champions"}

func listArgs(_ *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && !slices.Contains(listKinds, args[0]) {
		return fmt.Errorf("list %s: there are %s", strings.Join(args, " "), strings.Join(listKinds, ", "))
	}
	return nil
}

// listIndent is the width of the names before texts in lists.
const listIndent = 8

// item writes a text beside a name, or below it if the name is long.
func item(w io.Writer, s terminal.Screen, name string, width int, text string) {
	margin := fmt.Sprintf("  %-*s ", width, name)
	s.Paragraph(w, margin, text, width+3)
}

func (a *app) listStages(kernel *spec.Kernel) {
	screen := a.screen()
	screen.Paragraph(a.stdout, "", fmt.Sprintf("stages of %s: %s", kernel.Name, kernel.About), 2)
	for _, s := range kernel.Stages {
		item(a.stdout, screen, s.Name, listIndent, s.Hypothesis)
		if parent, ok := s.Variant().Parent(); ok {
			item(a.stdout, screen, "", listIndent, fmt.Sprintf("must be %.2fx as fast as %s", s.Speedup, parent))
		}
		item(a.stdout, screen, "", listIndent, fmt.Sprintf("for %s, within %d registers, %d bytes of shared memory, %d bytes of spill",
			strings.Join(s.Archs, ", "), s.Budget.Registers, s.Budget.SharedBytes, s.Budget.SpillBytes))
	}
}

func (a *app) listSelections(kernel *spec.Kernel) {
	screen := a.screen()
	screen.Paragraph(a.stdout, "", "selections (the first line that holds for a shape chooses its variant)", 2)
	for _, s := range kernel.Selections {
		line := func(format string, args ...any) {
			margin := strings.Repeat(" ", listIndent+3)
			screen.Paragraph(a.stdout, margin, fmt.Sprintf(format, args...), len(margin)+4)
		}
		item(a.stdout, screen, s.Name, listIndent, s.Hypothesis)
		if parent, ok := s.Parent(); ok {
			line("must be %.2fx as fast as %s", s.Speedup, parent)
		}
		line("for %s", strings.Join(s.Archs, ", "))
		for _, p := range s.Predicates {
			line("let %s = %s", p.Name, p.Rule)
			line("  %s", p.About)
		}
		for _, c := range s.Choices {
			when := "else"
			if c.When != "" {
				when = "where " + c.When
			}
			line("%s: %s", when, c.Variant)
			line("  %s", c.Why)
		}
	}
}

func (a *app) listKnobs(kernel *spec.Kernel) {
	screen := a.screen()
	const indent = 16
	fmt.Fprintln(a.stdout, "knobs")
	for _, k := range kernel.Knobs {
		item(a.stdout, screen, k.Name, indent, fmt.Sprintf("%s, %s (default %d)", k.Layer, joined(k.Values), k.Default))
		item(a.stdout, screen, "", indent, k.About)
	}
	fmt.Fprintln(a.stdout, "constraints")
	for _, c := range kernel.Constraints {
		screen.Paragraph(a.stdout, "  ", c.Rule, 4)
		screen.Paragraph(a.stdout, "      ", c.Why, 6)
	}
}

func (a *app) listShapes(kernel *spec.Kernel) {
	const indent = 10
	fmt.Fprintln(a.stdout, "shapes")
	for _, g := range kernel.Groups {
		item(a.stdout, a.screen(), g.Name, indent, joined(g.Shapes))
	}
}

func joined[T any](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, " ")
}

// listing is the JSON document of `attune list`.
func listing(kernel *spec.Kernel, wants func(string) bool) map[string]any {
	document := map[string]any{"schema_version": 1, "kernel": kernel.Name, "about": kernel.About}
	if wants("stages") {
		var stages []map[string]any
		for _, s := range kernel.Stages {
			knobs := map[string]int{}
			for _, setting := range s.Variant().Values() {
				knobs[setting.Knob] = setting.Value
			}
			stage := map[string]any{
				"name": s.Name, "hypothesis": s.Hypothesis, "knobs": knobs, "archs": s.Archs, "error_share": s.ErrorShare,
				"budget": map[string]int{"registers": s.Budget.Registers, "shared_bytes": s.Budget.SharedBytes, "spill_bytes": s.Budget.SpillBytes},
			}
			if parent, ok := s.Variant().Parent(); ok {
				stage["parent"], stage["speedup"] = parent.String(), s.Speedup
			}
			stages = append(stages, stage)
		}
		document["stages"] = stages
	}
	if wants("selections") {
		selections := []map[string]any{}
		for _, s := range kernel.Selections {
			selections = append(selections, selectionListing(s))
		}
		document["selections"] = selections
	}
	if wants("knobs") {
		var knobs, rules []map[string]any
		for _, k := range kernel.Knobs {
			knobs = append(knobs, map[string]any{"name": k.Name, "layer": k.Layer, "values": k.Values, "default": k.Default, "about": k.About})
		}
		for _, c := range kernel.Constraints {
			rules = append(rules, map[string]any{"rule": c.Rule, "why": c.Why})
		}
		document["knobs"], document["constraints"] = knobs, rules
	}
	if wants("shapes") {
		shapes := map[string][]string{}
		for _, g := range kernel.Groups {
			for _, p := range g.Shapes {
				shapes[g.Name] = append(shapes[g.Name], p.String())
			}
		}
		document["shapes"] = shapes
	}
	return document
}

func selectionListing(s *spec.Selection) map[string]any {
	var choices []map[string]any
	for _, c := range s.Choices {
		choice := map[string]any{"variant": c.Variant.String(), "why": c.Why}
		if c.When != "" {
			choice["when"] = c.When
		}
		choices = append(choices, choice)
	}
	selection := map[string]any{"name": s.Name, "hypothesis": s.Hypothesis, "archs": s.Archs, "choices": choices}
	if len(s.Predicates) > 0 {
		var predicates []map[string]any
		for _, p := range s.Predicates {
			predicates = append(predicates, map[string]any{"name": p.Name, "rule": p.Rule, "about": p.About})
		}
		selection["predicates"] = predicates
	}
	if parent, ok := s.Parent(); ok {
		selection["parent"], selection["speedup"] = parent.String(), s.Speedup
	}
	return selection
}
