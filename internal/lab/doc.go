// Package lab is the road from a variant to a verdict.
//
// It calls the other packages in the order in which data flows: toolchain builds the variant and its parent, device runs
// them, oracle says what is right, measure sums up the times, gate judges, ledger keeps. Every front end, the command line and any other,
// goes through it, so that all of them do the same thing.
//
// Each variant gets a device of its own and fails alone: a compile error, a crash or a hang becomes part of that variant's
// record, and the next variant runs.
package lab
