package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/spec"
)

// tuningHeadline is the result in one sentence.
func tuningHeadline(t *run.Tuning) string {
	over := t.Facts.Name
	if n := len(t.Identity.Shapes); n > 1 {
		over = fmt.Sprintf("geometric mean of %d shapes, %s", n, over)
	}
	if t.Simulated() {
		over += "; " + run.CostLabel + ": an exact count of the simulator"
	}
	switch {
	case t.Faster:
		return fmt.Sprintf("best: %s, %s (%s)", t.Best.Name(), tunedRatio(t.Best), over)
	case len(t.Elites) == 0:
		return fmt.Sprintf("best: the default %s; no other variant ran (%s)", t.Default.Variant, over)
	}
	better := "is better beyond doubt"
	if t.Simulated() {
		better = "costs less"
	}
	return fmt.Sprintf("best: the default %s; no variant %s (%s)", t.Default.Variant, better, over)
}

// tunedRatio is the ratio to the default with its interval.
func tunedRatio(v run.TunedVariant) string {
	r := v.Ratio
	if r.Low == r.High {
		return fmt.Sprintf("%.3fx the default", r.Ratio)
	}
	return fmt.Sprintf("%.3fx the default (%.3f to %.3f)", r.Ratio, r.Low, r.High)
}

// tunedCost is a cost in the unit of the table.
func (r record) tunedCost(objective string, cost float64, key string) Text {
	switch objective {
	case run.ObjectiveTime:
		return cell(derived("%.3f", 1e6*cost, "1000000 * "+r.key("%s", key)))
	case run.ObjectiveEnergy:
		return cell(derived("%.4g", 1e3*cost, "1000 * "+r.key("%s", key)))
	}
	return cell(r.figure("%.0f", cost, "%s", key))
}

// TunedCost is the same as a text.
func TunedCost(objective string, cost float64) string {
	return record{}.tunedCost(objective, cost, "").String()
}

// tuningFailed names elites that failed in the finals.
func tuningFailed(t *run.Tuning) []string {
	var lines []string
	for _, v := range t.Elites {
		if v.Failure != "" {
			lines = append(lines, fmt.Sprintf("%s failed in the finals: %s: %s", v.Name(), v.Failure, v.Reason))
		}
	}
	return lines
}

// tuningNumbers counts the evaluations.
func tuningNumbers(t *run.Tuning) string {
	text := fmt.Sprintf("%d evaluations", t.Evaluations)
	if t.Variants != nil {
		text += fmt.Sprintf(" of %.0f variants", *t.Variants)
	}
	text += fmt.Sprintf(" in %.0f s", t.Seconds)
	if t.EqualCode > 0 {
		text += fmt.Sprintf(", %d more with machine code that was evaluated before", t.EqualCode)
	}
	var failures []string
	for _, kind := range slices.Sorted(maps.Keys(t.Failures)) {
		failures = append(failures, fmt.Sprintf("%d %s", t.Failures[kind], kind))
	}
	if len(failures) > 0 {
		text += "; failures: " + strings.Join(failures, ", ")
	}
	return text + "; " + t.Ended
}

// firstFailures has a line for each kind of failure, and one that says where the others are.
func firstFailures(t *run.Tuning) []string {
	var lines []string
	for _, f := range t.FirstFailures {
		lines = append(lines, fmt.Sprintf("first %s: %s: %s", f.Kind, f.Variant, strings.TrimPrefix(f.Reason, f.Variant+": ")))
	}
	if t.ID != "" && t.Failed() > len(lines) && len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("the other failures: `attune show %s --file %s`", t.ID, run.TuneJournal))
	}
	return lines
}

// tuningNext are the next commands.
func tuningNext(t *run.Tuning, kernel *spec.Kernel, command func(string) string) []string {
	var lines []string
	if t.ID != "" && kernel != nil {
		lines = append(lines, fmt.Sprintf("recorded as %s: `attune show %s`", t.ID, t.ID))
	}
	if !t.Faster {
		return lines
	}
	if t.Best.Patch != "" {
		// The kernel's folder does not have the patch, so that no command can name the kernel yet.
		return append(lines, fmt.Sprintf("to keep it: `attune show %s --file %s | patch -p1` in the kernel's folder, then `attune run %s`",
			t.ID, t.Best.Patch, t.Best.Variant))
	}
	shapes := strings.Join(t.Identity.Shapes, ",")
	compare := fmt.Sprintf("`attune compare %s %s --shapes %s`", run.ShellWord(t.Default.Variant), run.ShellWord(t.Best.Variant), run.ShellWord(shapes))
	if t.Simulated() {
		compare += " on a GPU"
	}
	lines = append(lines, "compare: "+command(compare), "check: "+command(fmt.Sprintf("`attune run %s`", t.Best.Variant)))
	if text := makeDefault(t, kernel); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// makeDefault says how the best variant becomes the default.
func makeDefault(t *run.Tuning, kernel *spec.Kernel) string {
	_, changes, changed := strings.Cut(t.Best.Variant, "+")
	if kernel == nil || !changed {
		return ""
	}
	settings := strings.ReplaceAll(strings.ReplaceAll(changes, "+", ", "), "=", " = ")
	stage, err := kernel.Stage(t.Stage)
	if err != nil {
		return ""
	}
	for _, knob := range kernel.Knobs {
		if value, has := stage.Variant().Value(knob.Name); has && value != knob.Default {
			return fmt.Sprintf("to make it the default: %s in the knobs of [[stage]] %s in %s", settings, t.Stage, spec.File)
		}
	}
	if len(kernel.Stages) > 1 {
		return fmt.Sprintf("to make it the default: %s in the knobs of [[stage]] %s in %s", settings, t.Stage, spec.File)
	}
	return fmt.Sprintf("to make it the default: %s as default of the [[knob]] in %s", settings, spec.File)
}

// TuneBest is the line about a new best variant.
func TuneBest(e, standard *run.TuneEvaluation) string {
	cost := TunedCost(e.Objective, *e.Cost)
	switch e.Objective {
	case run.ObjectiveTime:
		cost += " us"
	case run.ObjectiveEnergy:
		cost += " mJ"
	default:
		cost = "cost " + cost + " (" + run.CostLabel + ")"
	}
	if e.Number == standard.Number {
		return fmt.Sprintf("default %s: %s", e.Variant, cost)
	}
	return fmt.Sprintf("new best at evaluation %d: %s, %s, %.3fx the default", e.Number, e.Name(), cost, *standard.Cost / *e.Cost)
}
