package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"attune/examples"
	"attune/internal/arch"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// completer completes an argument or the value of a flag.
type completer = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// addCompletions tells the shell what the arguments and flags of the commands can be: stages,
// selections, knobs and their values, shapes, and runs of the ledger.
func (a *app) addCompletions(root *cobra.Command) {
	one := func(c completer) completer { return upTo(1, c) }
	arguments := map[string]completer{
		"init":      one(fixed(examples.Names()...)),
		"run":       a.completeVariants(true),
		"watch":     one(a.completeVariants(true)),
		"bench":     a.completeVariants(true),
		"compare":   upTo(2, both(a.completeVariants(true), a.completeRuns)),
		"accuracy":  a.completeVariants(false),
		"build":     one(a.completeVariants(false)),
		"profile":   one(a.completeVariants(false)),
		"predict":   a.completeVariants(false),
		"tune":      one(a.completeVariants(false)),
		"export":    one(a.completeSelections),
		"mutate":    one(withFiles(a.completeVariants(false))),
		"show":      one(a.completeRuns),
		"report":    a.completeRuns,
		"promote":   one(a.completeRuns),
		"reproduce": one(a.completeRuns),
		"worker":    nothing,
	}
	flags := map[string]completer{
		"shapes":   a.completeShapes,
		"against":  a.completeVariants(false),
		"variant":  a.completeVariants(false),
		"stage":    a.completeStages,
		"verdict":  fixed(joinable(gate.Verdicts)...),
		"device":   fixed(autoDevice, cudaDevice, simDevice),
		"l2":       fixed("warm", "cold"),
		"chip":     fixed(strings.Split(arch.ChipNames(), ", ")...),
		"checks":   fixed("on", "off"),
		"strategy": fixed(append([]string{"all"}, tune.Strategies...)...),

		"objective": fixed(run.ObjectiveTime, run.ObjectiveEnergy, run.ObjectiveCost),
	}
	for _, cmd := range root.Commands() {
		if c := arguments[cmd.Name()]; c != nil {
			cmd.ValidArgsFunction = c
		}
		for name, c := range flags {
			if cmd.Flags().Lookup(name) != nil {
				// It fails only for a flag that does not exist.
				_ = cmd.RegisterFlagCompletionFunc(name, c)
			}
		}
	}
}

// nothing completes nothing, not even files.
func nothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// upTo completes the first n arguments and no more.
func upTo(n int, c completer) completer {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c(cmd, args, begun)
	}
}

// both has the completions of two completers.
func both(first, second completer) completer {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		all, directive := first(cmd, args, begun)
		more, _ := second(cmd, args, begun)
		return append(all, more...), directive
	}
}

// withFiles lets the shell complete file names where nothing else fits.
func withFiles(c completer) completer {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		all, directive := c(cmd, args, begun)
		return all, directive &^ cobra.ShellCompDirectiveNoFileComp
	}
}

// fixed completes one of a few words.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

func joinable[T ~string](all []T) []string {
	var texts []string
	for _, x := range all {
		texts = append(texts, string(x))
	}
	return texts
}

// completeSelections completes a selection.
func (a *app) completeSelections(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	kernel, _, err := a.kernel()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range kernel.Selections {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeVariants completes a stage, then the knobs that it has, then their values. Selections are
// offered to the commands that take them.
func (a *app) completeVariants(selections bool) completer {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		kernel, _, err := a.kernel()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if !strings.Contains(begun, "+") {
			return starting(begun, stageNames(kernel, selections)), directive
		}
		head, last := begun[:strings.LastIndex(begun, "+")], begun[strings.LastIndex(begun, "+")+1:]
		base, err := kernel.Variant(head)
		if err != nil {
			return nil, directive
		}
		if knob, _, isValue := strings.Cut(last, "="); isValue {
			return starting(begun, knobValues(kernel, head, knob)), directive
		}
		var all []string
		for _, knob := range kernel.Knobs {
			if _, has := base.Value(knob.Name); !has || strings.Contains(head, "+"+knob.Name+"=") {
				continue
			}
			all = append(all, cobra.CompletionWithDesc(head+"+"+knob.Name+"=", firstLine(knob.About)))
		}
		return starting(begun, all), directive | cobra.ShellCompDirectiveNoSpace
	}
}

// knobValues are the variants with each value of a knob that the constraints allow.
func knobValues(kernel *spec.Kernel, head, name string) []string {
	i := slices.IndexFunc(kernel.Knobs, func(k spec.Knob) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	var all []string
	for _, value := range kernel.Knobs[i].Values {
		text := fmt.Sprintf("%s+%s=%d", head, name, value)
		if _, err := kernel.Variant(text); err == nil {
			all = append(all, text)
		}
	}
	return all
}

func stageNames(kernel *spec.Kernel, selections bool) []string {
	var all []string
	for _, s := range kernel.Stages {
		all = append(all, cobra.CompletionWithDesc(s.Name, firstLine(s.Hypothesis)))
	}
	if selections {
		for _, s := range kernel.Selections {
			all = append(all, cobra.CompletionWithDesc(s.Name, "a variant for each shape"))
		}
	}
	return all
}

func (a *app) completeStages(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	kernel, _, err := a.kernel()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return starting(begun, stageNames(kernel, true)), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeShapes completes the last item of a list of shapes: groups, and the shapes in them.
func (a *app) completeShapes(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	kernel, _, err := a.kernel()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := begun[:strings.LastIndex(begun, ",")+1]
	listed := strings.Split(list, ",")
	var all, shapes []string
	for _, g := range kernel.Groups {
		var texts []string
		for _, shape := range g.Shapes {
			text := shape.String()
			texts = append(texts, text)
			if !slices.Contains(listed, text) && !slices.Contains(shapes, list+text) {
				shapes = append(shapes, list+text)
			}
		}
		if !slices.Contains(listed, g.Name) {
			all = append(all, cobra.CompletionWithDesc(list+g.Name, strings.Join(texts, " ")))
		}
	}
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
	return starting(begun, append(all, shapes...)), directive
}

// completeRuns completes the id of a run, the newest first. It creates no ledger.
func (a *app) completeRuns(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if _, err := os.Stat(a.ledgerPath()); err != nil {
		return nil, directive
	}
	kept, err := a.openLedger(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer kept.Close()
	entries, err := kept.List(cmd.Context(), ledger.Filter{})
	if err != nil || len(entries) == 0 {
		return nil, directive
	}
	all := []string{cobra.CompletionWithDesc("latest", entries[0].ID)}
	for _, e := range entries {
		all = append(all, cobra.CompletionWithDesc(e.ID, e.Variant+" "+e.Verdict))
	}
	return starting(begun, all), directive
}

// starting are the completions that begin with what was typed.
func starting(begun string, all []string) []string {
	return slices.DeleteFunc(all, func(text string) bool { return !strings.HasPrefix(text, begun) })
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
