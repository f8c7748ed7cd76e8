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
		place := fmt.Sprintf("PTX line %d, ", m.Line)
		if m.Line == 0 {
			place = ""
		}
		fmt.Fprintf(out, "survived: %s%s\n  was  %s\n  is   %s\n", place, m.Kind, PTXLine(m.Before), PTXLine(m.After))
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

// PTXLine is a line of PTX with single spaces.
func PTXLine(text string) string { return strings.Join(strings.Fields(text), " ") }
