// Package report writes runs for people and for other programs: as text for a terminal, as Markdown, as JUnit XML, and as the
// ladder of stages that the README shows.
//
// It prints what a record holds and computes nothing new, except for what one run is to another (the ladder's cumulative
// speedup). What was not measured is written so.
package report
