package document

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"attune/internal/mutate"
)

// Mutation writes the mutants of a kernel: the killed ones by kind and by cause, the survivors, and
// the totals. Without a compiler no mutant can be shown to be equivalent.
func Mutation(w io.Writer, kernel string, r *mutate.Report, compiler bool) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s: %d of %d possible mutants tried on the simulator\n", kernel, r.Mutants, r.Possible)
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		if t := r.ByKind[kind]; t.Mutants > 0 {
			fmt.Fprintf(out, "  %-20s %d of %d killed\n", kind, t.Killed, t.Mutants)
		}
	}
	if len(r.KilledBy) > 0 {
		fmt.Fprintln(out, "killed by")
	}
	for _, by := range slices.Sorted(maps.Keys(r.KilledBy)) {
		fmt.Fprintf(out, "  %-20s %d\n", by, r.KilledBy[by])
	}
	for _, m := range r.Survivors {
		fmt.Fprintf(out, "survived: %s%s\n  was  %s\n  is   %s\n", survivorPlace(m), m.Kind, PTXLine(m.Before), PTXLine(m.After))
	}
	if never := count(r.Survivors, mutate.NeverExecuted); never > 0 {
		fmt.Fprintf(out, "survivors in lines that are never executed: %d; another shape may reach them\n", never)
	}
	fmt.Fprintf(out, "%d killed, %d survived, %d equivalent", r.Killed, r.Survived, r.Equivalent)
	if r.Killed+r.Survived > 0 {
		fmt.Fprintf(out, ": kill rate %.1f %%", 100*r.KillRate)
	}
	fmt.Fprintln(out)
	if !compiler && r.Survived > 0 {
		fmt.Fprintln(out, "without a compiler some survivors may be equivalent; `attune toolchain install` gets one")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// survivorPlace is the line of a survivor in the source and in the PTX, and its class.
func survivorPlace(m mutate.Mutant) string {
	place := ""
	if m.Source != nil {
		place = fmt.Sprintf("%s:%d, ", m.Source.File, m.Source.Line)
	}
	if m.Line > 0 {
		place += fmt.Sprintf("PTX line %d, ", m.Line)
	}
	if m.Class != "" {
		place += string(m.Class) + ", "
	}
	return place
}

// count counts the survivors of a class.
func count(survivors []mutate.Mutant, class mutate.Class) int {
	n := 0
	for _, m := range survivors {
		if m.Class == class {
			n++
		}
	}
	return n
}

// PTXLine is a line of PTX with single spaces.
func PTXLine(text string) string { return strings.Join(strings.Fields(text), " ") }
