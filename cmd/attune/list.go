package main

import (
	"fmt"
	"io"
	"maps"
	"math"
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
			if len(args) == 1 && hasNone(kernel, args[0]) {
				fmt.Fprintf(a.stdout, "%s has no %s\n", kernel.Name, args[0])
				return nil
			}
			if len(args) == 0 && kernel.Declared != nil {
				a.listProblem(kernel)
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

// hasNone reports whether a kernel has nothing of a kind that it may leave out.
func hasNone(kernel *spec.Kernel, kind string) bool {
	return kind == "selections" && len(kernel.Selections) == 0 || kind == "knobs" && len(kernel.Knobs) == 0
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
	heading := "stages of " + kernel.Name
	if kernel.About != "" {
		heading += ": " + kernel.About
	}
	screen.Paragraph(a.stdout, "", heading, 2)
	for _, s := range kernel.Stages {
		item(a.stdout, screen, s.Name, listIndent, s.Hypothesis)
		if parent, ok := s.Variant().Parent(); ok {
			item(a.stdout, screen, "", listIndent, parentText(s.Speedup, parent))
		}
		item(a.stdout, screen, "", listIndent, fmt.Sprintf("for %s%s", strings.Join(s.Archs, ", "), budgetText(s.Budget)))
	}
}

// parentText says what a stage or a selection must reach, if anything.
func parentText(speedup float64, parent spec.Variant) string {
	if speedup == 0 {
		return fmt.Sprintf("compared with %s, no speedup required", parent)
	}
	return fmt.Sprintf("must be %.2fx as fast as %s", speedup, parent)
}

// budgetText lists the parts of a budget that the stage declares.
func budgetText(b spec.Budget) string {
	var parts []string
	for _, part := range []struct {
		limit int
		what  string
	}{{b.Registers, "registers"}, {b.SharedBytes, "bytes of shared memory"}, {b.SpillBytes, "bytes of spill"}} {
		if part.limit != math.MaxInt {
			parts = append(parts, fmt.Sprintf("%d %s", part.limit, part.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ", within " + strings.Join(parts, ", ")
}

// listProblem lists what a declared kernel computes.
func (a *app) listProblem(kernel *spec.Kernel) {
	d, screen := kernel.Declared, a.screen()
	const indent = 10
	fmt.Fprintf(a.stdout, "arguments of %s\n", d.Entry)
	for _, arg := range d.Args {
		item(a.stdout, screen, arg.Name, indent, argumentText(d, arg))
	}
	launch := fmt.Sprintf("grid %s, block %s", extents(d.Grid), extents(d.Block))
	if d.Cluster[0] != nil {
		launch += ", cluster " + extents(d.Cluster)
	}
	if d.Shared != nil {
		launch += fmt.Sprintf(", shared %s bytes", d.Shared)
	}
	if d.Cooperative {
		launch += ", cooperative"
	}
	item(a.stdout, screen, "launch", indent, launch)
	item(a.stdout, screen, "reference", indent, d.Reference.Kind+" "+d.Reference.Path)
}

// argumentText describes an argument of a declared kernel, as kernel.toml does.
func argumentText(d *spec.Declaration, arg spec.Arg) string {
	shape := fmt.Sprintf("%s [%s]", arg.TypeText(), expressions(arg.Shape))
	if arg.When != nil {
		shape += fmt.Sprintf(" or null, when %s", arg.When)
	}
	switch arg.Role {
	case spec.Scalar:
		return fmt.Sprintf("%s = %s", arg.TypeText(), arg.Value)
	case spec.Map:
		swizzle := arg.Map.Swizzle
		if arg.Map.SwizzleBytes != nil {
			swizzle = arg.Map.SwizzleBytes.String() + " bytes"
		}
		return fmt.Sprintf("tensor map of %s, box [%s], swizzle %s", d.Args[arg.Map.Arg].Name, expressions(arg.Map.Box), swizzle)
	case spec.Out:
		return shape + ", out"
	case spec.Scratch:
		if arg.Zero {
			return shape + ", scratch, zero before every launch"
		}
		return shape + ", scratch"
	case spec.InOut:
		shape += ", inout"
	}
	if arg.File != "" {
		return shape + ", file " + arg.File
	}
	if arg.Fill.A != nil {
		return fmt.Sprintf("%s, %s(%s, %s)", shape, arg.Fill.Kind, arg.Fill.A, arg.Fill.B)
	}
	return shape + ", " + arg.Fill.Kind
}

func expressions(all []*spec.Expr) string {
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}

// extents writes the dimensions of a grid, a block or a cluster, without those at the end that are 1.
func extents(all [3]*spec.Expr) string {
	n := 1
	for i, e := range all {
		if e != nil && e.String() != "1" {
			n = i + 1
		}
	}
	return "[" + expressions(all[:n]) + "]"
}

func (a *app) listSelections(kernel *spec.Kernel) {
	if kernel.Declared != nil && len(kernel.Selections) == 0 {
		return
	}
	screen := a.screen()
	screen.Paragraph(a.stdout, "", "selections (the first line that holds for a shape chooses its variant)", 2)
	for _, s := range kernel.Selections {
		line := func(format string, args ...any) {
			margin := strings.Repeat(" ", listIndent+3)
			screen.Paragraph(a.stdout, margin, fmt.Sprintf(format, args...), len(margin)+4)
		}
		item(a.stdout, screen, s.Name, listIndent, s.Hypothesis)
		if parent, ok := s.Parent(); ok {
			line("%s", parentText(s.Speedup, parent))
		}
		line("for %s", strings.Join(s.Archs, ", "))
		for _, p := range s.Predicates {
			line("let %s = %s", p.Name, p.Rule)
			if p.About != "" {
				line("  %s", p.About)
			}
		}
		for _, c := range s.Choices {
			when := "else"
			if c.When != "" {
				when = "where " + c.When
			}
			line("%s: %s", when, c.Variant)
			if c.Why != "" {
				line("  %s", c.Why)
			}
		}
	}
}

func (a *app) listKnobs(kernel *spec.Kernel) {
	screen := a.screen()
	const indent = 16
	if kernel.Declared != nil && len(kernel.Knobs) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, "knobs")
	for _, k := range kernel.Knobs {
		item(a.stdout, screen, k.Name, indent, fmt.Sprintf("%s, %s (default %d)", k.Layer, joined(k.Values), k.Default))
		if k.About != "" {
			item(a.stdout, screen, "", indent, k.About)
		}
	}
	if kernel.Declared != nil && len(kernel.Constraints) == 0 {
		return
	}
	fmt.Fprintln(a.stdout, "constraints")
	for _, c := range kernel.Constraints {
		screen.Paragraph(a.stdout, "  ", c.Rule, 4)
		if c.Why != "" {
			screen.Paragraph(a.stdout, "      ", c.Why, 6)
		}
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
	if d := kernel.Declared; d != nil {
		document["problem"] = problemListing(d)
	}
	if wants("stages") {
		var stages []map[string]any
		for _, s := range kernel.Stages {
			stages = append(stages, stageListing(s))
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
		knobs, rules := []map[string]any{}, []map[string]any{}
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

func stageListing(s *spec.Stage) map[string]any {
	knobs := map[string]int{}
	for _, setting := range s.Variant().Values() {
		knobs[setting.Knob] = setting.Value
	}
	stage := map[string]any{"name": s.Name, "hypothesis": s.Hypothesis, "knobs": knobs, "archs": s.Archs, "error_share": s.ErrorShare}
	if !s.Budget.Unlimited() {
		budget := map[string]int{"registers": s.Budget.Registers, "shared_bytes": s.Budget.SharedBytes, "spill_bytes": s.Budget.SpillBytes}
		maps.DeleteFunc(budget, func(_ string, limit int) bool { return limit == math.MaxInt })
		stage["budget"] = budget
	}
	if parent, ok := s.Variant().Parent(); ok {
		stage["parent"], stage["speedup"] = parent.String(), s.Speedup
	}
	return stage
}

// problemListing is what a declared kernel computes.
func problemListing(d *spec.Declaration) map[string]any {
	var args []map[string]any
	for _, arg := range d.Args {
		entry := map[string]any{"name": arg.Name, "is": argumentText(d, arg)}
		if arg.Type != "" {
			entry["type"] = arg.TypeText()
		}
		args = append(args, entry)
	}
	return map[string]any{
		"entry": d.Entry, "axes": d.Axes, "args": args, "reference": map[string]string{"kind": d.Reference.Kind, "path": d.Reference.Path},
	}
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
