// Package terminal shows a status line: one line of progress on a terminal. Results replace it, and
// it is cleared at the end.
//
// attune writes results to standard output and everything else to standard error. If standard error
// is not a terminal, there is no status line.
package terminal
