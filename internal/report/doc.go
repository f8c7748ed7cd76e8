// Package report renders records for people and for other programs: as text for a terminal, as
// Markdown, as JUnit XML, and in the formats of benchmark tools. It turns records into the plots that
// internal/plot draws.
//
// It prints what a record holds. It computes only what relates records to each other, such as the
// cumulative speedup of the ladder. What was not measured is printed as "not measured".
package report
