// Package ledger keeps every run and every bench for good: what was built, what was measured, what the verdict was, and the evidence.
//
// A ledger is a directory:
//
//	runs/20261115-031522-stage2-3f9a1c/    one directory a run, written once
//	    run.json                           the run; the index knows a few of its keys, see [Entry]
//	    samples.json ptxas.log report.md   whatever evidence the run left
//	    sha256sums                         of all the others; `sha256sum -c sha256sums` agrees
//	champions/20261115-061200-sm_90-7be20d/  one directory a change of a champion, written once
//	    champion.json                      who is champion from now on, by which run, and which change this one follows; see [Champion]
//	    sha256sums
//	benches/20261115-064000-bench-91c0de/  one directory a bench, written once
//	    bench.json samples.json report.md  the bench, its samples, and how it was printed
//	    sha256sums
//	index.sqlite                           an index of the run.json files, and nothing more
//
// The directories are the truth. A run is first written to runs/.tmp-*, flushed to disk, and then renamed, so it is
// there whole or not at all: whatever happens to the process or the disk, and however many processes record at once.
// A run counts as finished when its name is a run's, its sha256sums can be read, and its run.json agrees with them.
//
// The index only saves time. Before every question its ids are compared with the names in runs/, and what is missing or
// gone is put right; runs that came by git or by cp are found in this way. An index that is damaged, or of another version of
// attune, is moved aside and built anew. One that cannot be read or written at all (a read-only checkout, a full disk, a
// lock that is never released) is replaced by one in memory. So no failure of the index ever fails a question or a recording.
//
// The files of a run are read-only (mode 0444), which stops an editor or a stray redirection. Its directory keeps
// its write permission: without it rm -rf, git clean and git checkout fail for everyone but root, it would not
// survive git in any case, and [Ledger.Verify] finds a file that was added or removed.
//
// Benches and changes of a champion are in no index: there are few of them. Each change of a champion holds the checksum
// of the one it follows, so that they make a chain in which nothing can be rewritten or taken out unseen.
//
// The index uses SQLite's rollback journal, because a ledger may lie on NFS, where a write-ahead log does not work.
//
// This package stores documents. It knows nothing of gates, devices or figures, and it never changes a run.
package ledger
