// Package tuner searches the knobs of a kernel on a lab.
//
// A candidate is one variant or patch on its way through a search. The strategies of package tune
// and a Proposer choose candidates. Each one takes this way (evaluate.go):
//
//   - build: compile it; machine code that was evaluated before has its result;
//   - resources: compare its launches with the limits of the chip;
//   - correctness: compare its outputs on small shapes with the reference;
//   - measure: screen it against the best so far (screen.go), or compute its simulated cost (cost.go).
//
// The standings have the results. The finals (finals.go) check the best candidates on all shapes and
// seeds, and time them together with the default. Journal, elites and record are in a folder
// (folder.go), from which an interrupted search is resumed.
//
// Search searches from one variant. SearchSelection searches each shape of a selection, measures the
// best forms on all shapes (forms.go), and proposes a table.
package tuner
