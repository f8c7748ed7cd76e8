// Package catalog reads the records of a ledger as the documents that commands print with --json:
// the history of runs and searches, the ladder of stages, the champions, the comparison of two
// runs. The command line and the web page share it, so that both show the same.
package catalog
