// Package terminal writes text for people: tables and paragraphs that fit the screen, colour, and a
// status line.
//
// attune writes results to standard output and everything else to standard error. If standard error
// is not a terminal, there is no status line. Text without a terminal is 80 columns wide.
package terminal
