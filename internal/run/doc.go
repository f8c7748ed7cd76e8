// Package run defines the records of a lab: a run of one variant or selection through the gates, a
// bench beside peers, a comparison of two variants, the reproduction of a run, and the search for the
// fastest variant.
//
// A Run is the document run.json of the ledger and an element of `runs` that `attune run --json`
// prints. Names carry their unit. JSON keys are never changed, and fields are only added, so that
// records stay readable.
package run
