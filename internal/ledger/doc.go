// Package ledger stores runs, benches, tunings and champions: what was built, what was measured, the
// verdict and the evidence for it. Records are written once and never changed.
//
// A ledger is a directory:
//
//	runs/20261115-031522-stage2-3f9a1c/       one directory per run
//	    run.json                              the run; the index holds a few keys, see [Entry]
//	    samples.json.gz ptxas.log report.md   the evidence of the run
//	    sha256sums                            of the other files, in the format of sha256sum
//	champions/20261115-061200-sm_90-7be20d/   one directory per change of a champion
//	    champion.json                         the champion, its run and the record before it
//	    sha256sums
//	benches/20261115-064000-bench-91c0de/     one directory per bench
//	    bench.json samples.json.gz report.md  the bench, its samples and its printed form
//	    sha256sums
//	tunings/20261117-045950-softmax-e5390a/   one directory per finished search
//	    tuning.json elite.json journal.jsonl  the search, its best variants and all evaluations
//	    report.md sha256sums
//	tuning/20261117-050053-softmax-2b1b26/    a search that runs or was interrupted; no record
//	chain                                     a line for every record that was added or removed
//	index.sqlite                              an index of the run.json files
//
// The directories are authoritative. A record is first written to a directory .tmp-*, flushed to
// disk, entered into the chain and then renamed. So it is complete or absent, whatever happens to
// the process or the disk, and however many processes record at the same time. [Open] finishes a
// record whose process was killed between the chain and the rename. A run counts as finished if its directory has
// a valid name, its sha256sums can be read, and its run.json has the recorded checksum.
//
// The index only saves time. Opening a ledger reads it into memory, and queries are answered from
// there. Before every query the ids are compared with the names in runs/, and the difference is
// applied to both, so runs that git or cp brought are found. The names are not read if the directory
// has not changed since: its change time, which no program can set, is the same and was over two
// seconds old. An index that is damaged, or that another version of attune wrote, is moved aside and
// rebuilt. If the file cannot be used at all (a read-only checkout, a full disk, a lock that is never
// released), the runs are read from their directories. So a failure of the index never fails a query
// or a recording.
//
// The files of a record are read-only (mode 0444), which stops an editor or a stray redirection.
// The directory stays writable: otherwise rm -rf, git clean and git checkout fail for everyone but
// root. [Ledger.Verify] reports a file that was added or removed.
//
// A line of the chain has the SHA-256 of the record's sha256sums, the seal, and a hash of itself and
// of the hash of the line before. The last hash is the root. [Ledger.Verify] reports a record whose
// seal differs, a record without a line and a line without a record. Someone who can write to the
// directory can also rewrite the chain; a root that was kept elsewhere shows it ([Report.Since]).
// The file is replaced as a whole, so an incomplete line is damage and never a recording that was
// cut short. Deletion on purpose ([Ledger.Remove]) is a line too.
//
// Benches, tunings and champions are not in the index, because there are few of them. Each champion record
// has the checksum of the record before it, so Verify reports one that was rewritten or removed.
//
// A file recorded as NAME.gz is also read as NAME, decompressed.
//
// The index uses SQLite's rollback journal, because a write-ahead log does not work on NFS.
//
// This package stores documents. It has no knowledge of gates, devices or figures.
package ledger
