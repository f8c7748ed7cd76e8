// Package finding has the kinds of defects that the simulator's checkers report, and the collection
// of findings of one launch.
package finding
