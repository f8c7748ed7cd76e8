// Package run is the record of one variant's way through the gates: what was asked, what was seen and what was decided.
//
// It is the document run.json of the ledger and the element of `runs` that `attune run --json` prints. Names carry their
// unit. Fields are only ever added.
package run
