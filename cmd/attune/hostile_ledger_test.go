//go:build linux

package main

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// inRecord is the path of a file of the finished record, relative to the working directory.
func (a *arena) inRecord(name string) string {
	path, err := filepath.Rel(a.dir, filepath.Join(a.record, name))
	a.must(err)
	return path
}

// resign makes checksums of the record's files, as they are now, and a ledger without a chain: a
// record of somebody else.
func (a *arena) resign() {
	a.t.Helper()
	var sums strings.Builder
	a.must(fs.WalkDir(os.DirFS(a.record), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && path != "sha256sums" {
			data, err := os.ReadFile(filepath.Join(a.record, path))
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), path)
			return err
		}
		return err
	}))
	a.must(os.Remove(filepath.Join(a.record, "sha256sums")))
	a.write(a.inRecord("sha256sums"), sums.String())
	a.must(os.Remove(a.at(".attune/chain")))
	_ = os.Remove(a.at(".attune/index.sqlite")) // it need not be there
}

// query changes the index by SQL.
func (a *arena) query(statements ...string) {
	a.t.Helper()
	db, err := sql.Open("sqlite", a.at(".attune/index.sqlite"))
	a.must(err)
	defer db.Close()
	for _, s := range statements {
		_, err := db.Exec(s)
		a.must(err)
	}
}

// indexed makes the ledger's index, as `attune history` does.
func (a *arena) indexed() {
	a.t.Helper()
	cmd, stderr := command(a.t, "history")
	cmd.Dir = a.dir
	if err := cmd.Run(); err != nil {
		a.t.Fatal(err, stderr)
	}
}

func recordAttacks() []attack {
	damage := func(name string, exit int, want string, stage func(a *arena) []string) attack {
		return attack{kind: "record", name: name, exit: exit, want: want, with: attackOptions{damages: true}, stage: stage}
	}
	// The part of the ledger is replaced, and a command reads it.
	replaced := func(name, part string, exit int, want string, put func(a *arena, file string), args ...string) attack {
		return damage(name, exit, want, func(a *arena) []string {
			a.indexed()
			file := filepath.Join(".attune", part)
			if inside, ok := strings.CutPrefix(part, "RECORD/"); ok {
				file = a.inRecord(inside)
			}
			_ = os.RemoveAll(a.at(file)) // it need not be there
			put(a, file)
			return args
		})
	}
	pipe := func(a *arena, file string) { a.pipe(file) }
	folder := func(a *arena, file string) { a.folder(file) }
	outside := func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }
	outsideFolder := func(a *arena, file string) { a.link(file, a.outside) }
	garbage := func(a *arena, file string) { a.write(file, "\x1b]0;owned\x07"+strings.Repeat("\xff", 1000)) }
	huge := func(a *arena, file string) { a.sparse(file, "{", 3<<30) }
	// A record with text of its run.json replaced, and right checksums.
	forged := func(name string, exit int, want string, oldNew []string, args ...string) attack {
		return damage(name, exit, want, func(a *arena) []string {
			a.change(a.inRecord("run.json"), oldNew...)
			a.resign()
			return args
		})
	}
	const escapes = `\u001b]0;owned\u0007\u009b31m\u202e`
	held := damage("another process holds the ledger", exitInterrupted, "", func(a *arena) []string {
		a.hold(a.at(".attune"))
		a.hold(a.at(".attune/runs"))
		return []string{"run", "stage2", "--device", "sim", "--arch", "sm_80", "--shapes", "1x1x32x64", "--seeds", "0"}
	})
	held.with.interrupt = 6 * time.Second
	held.with.slow = true
	slow := func(k attack) attack { k.with.slow = true; return k }
	return []attack{
		held,
		replaced("run.json is a pipe", "RECORD/run.json", 1, "run.json", pipe, "show", "latest"),
		replaced("run.json links to a file outside", "RECORD/run.json", 1, "run.json", outside, "show", "latest", "--file", "run.json"),
		replaced("run.json has 3 GB", "RECORD/run.json", 1, "run.json", huge, "show", "latest"),
		replaced("run.json is garbage", "RECORD/run.json", 1, "run.json", garbage, "show", "latest"),
		replaced("the checksums are a pipe", "RECORD/sha256sums", 1, "sha256sums", pipe, "ledger", "verify"),
		replaced("the checksums have 3 GB", "RECORD/sha256sums", 1, "sha256sums", huge, "ledger", "verify"),
		replaced("the checksums name files outside", "RECORD/sha256sums", 1, "sha256sums", func(a *arena, file string) {
			a.write(file, strings.Repeat("0", 64)+"  ../../../../outside/secret.txt\n")
		}, "ledger", "verify"),
		replaced("a log links to a file outside", "RECORD/ptxas.log", 1, "ptxas.log", outside, "show", "latest", "--file", "ptxas.log"),
		replaced("samples are a pipe", "RECORD/samples.json.gz", 1, "samples", pipe, "ledger", "verify"),
		replaced("the chain is a pipe", "chain", 1, "chain", pipe, "ledger", "verify"),
		replaced("the chain is a folder", "chain", 1, "chain", folder, "ledger", "verify"),
		replaced("the chain links to a file outside", "chain", 1, "chain", outside, "ledger", "verify"),
		replaced("the chain has 3 GB", "chain", 1, "chain", huge, "ledger", "verify"),
		replaced("the chain is garbage", "chain", 1, "chain", garbage, "ledger", "verify"),
		replaced("the chain names a record outside", "chain", 1, "chain", func(a *arena, file string) {
			a.write(file, "attune ledger chain 1\nadd ../../outside/secret.txt "+strings.Repeat("0", 64)+" "+strings.Repeat("0", 64)+"\n")
		}, "ledger", "verify"),
		replaced("the index is a pipe", "index.sqlite", 0, "stage2", pipe, "history"),
		replaced("the index is a folder", "index.sqlite", 0, "stage2", folder, "history"),
		replaced("the index links to a file outside", "index.sqlite", 0, "stage2", outside, "history"),
		replaced("the index is garbage", "index.sqlite", 0, "stage2", garbage, "history"),
		replaced("the index has 3 GB of zeros", "index.sqlite", 0, "stage2", func(a *arena, file string) { a.sparse(file, "SQLite format 3\x00", 3<<30) }, "history"),
		replaced("the index has a journal of somebody else", "index.sqlite-journal", 0, "stage2", func(a *arena, file string) {
			a.write(file, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"+strings.Repeat("\xff", 4096))
		}, "history"),
		damage("the index has a view without end", 0, "stage2", func(a *arena) []string {
			a.indexed()
			a.query("ALTER TABLE runs RENAME TO r", "CREATE VIEW runs AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT r.* FROM c, r")
			return []string{"history"}
		}),
		damage("the index has a trigger", 0, "stage2", func(a *arena) []string {
			a.indexed()
			a.query("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END")
			return []string{"history"}
		}),
		damage("the index has a generated column without end", 0, "stage2", func(a *arena) []string {
			a.indexed()
			a.query("DROP TABLE runs", "CREATE TABLE runs (id TEXT, time, kernel, variant, stage, device, arch, verdict, code_hash, git_sha, shape, p50_us, parent_ratio, checksum AS (zeroblob(1000000000)))",
				"INSERT INTO runs (id) VALUES ('a')")
			return []string{"history"}
		}),
		damage("the index has a forged verdict", 0, "correct, not timed", func(a *arena) []string {
			a.indexed()
			a.forgeRow()
			return []string{"history"}
		}),
		damage("the index has a run that does not exist", 0, "stage2", func(a *arena) []string {
			a.indexed()
			a.query("INSERT INTO runs SELECT '20261115-052656-stage0-badad1', time, kernel, variant, stage, device, arch, verdict, code_hash, git_sha, shape, p50_us, parent_ratio, checksum FROM runs")
			return []string{"history"}
		}),
		replaced("runs is a link", "runs", 0, "no runs", outsideFolder, "history"),
		replaced("searches are a link", "tuning", 1, "link", outsideFolder, "ledger", "verify"),
		replaced("tunings are a link", "tunings", 1, "link", outsideFolder, "ledger", "verify"),
		replaced("champions are a link", "champions", 1, "link", outsideFolder, "ledger", "verify"),
		replaced("a search is a link", "tuning/20261115-052656-tune-badad1", 2, "no run", outsideFolder, "ledger", "remove", "20261115-052656-tune-badad1"),
		replaced("the journal of a search is a pipe", "tuning/20261115-052656-tune-badad1/journal.jsonl", 1, "journal", pipe, "ledger", "verify"),
		replaced("a staged record is a link", "runs/.tmp-owned", 0, "0 problems", outsideFolder, "ledger", "verify"),
		replaced("a staged record has a pipe", "runs/.tmp-owned/run.json", 0, "0 problems", pipe, "ledger", "verify"),
		replaced("a run's folder has escapes in its name", "runs/\x1b]0;owned\x07", 1, "", folder, "ledger", "verify"),
		replaced("a champion that nobody promoted", "champions/20261115-071645-sm_90-e9ff28/champion.json", 1, "", func(a *arena, file string) {
			a.write(file, `{"schema_version": 1, "number": 9223372036854775807, "arch": "sm_90", "kernel": "sdpa"}`)
		}, "ledger", "verify"),
		forged("a record with escapes in a table", 0, "owned", []string{`"variant": "stage2"`, `"variant": "stage2` + escapes + `"`}, "history"),
		forged("a record with escapes in all its text", 0, "owned", []string{`"verdict": "not-measured"`, `"verdict": "` + escapes + `"`, `"arch": "sm_80"`, `"arch": "` + escapes + `"`, `"hypothesis": "`, `"hypothesis": "` + escapes}, "show", "latest"),
		forged("a record with markup", 0, "", []string{`"hypothesis": "`, `"hypothesis": "<script>alert(1)</script>`}, "report", "latest", "-o", "out"),
		forged("a record with a number beyond a double", 1, "cannot unmarshal number", []string{`"schema_version": 1`, `"schema_version": 1, "speedup": 1e999`}, "show", "latest"),
		forged("a record of the future", 1, "", []string{`"schema_version": 1`, `"schema_version": 99999`}, "show", "latest"),
		forged("a record with another id", 2, "", []string{`"id": "2`, `"id": "../../../outside/2`}, "show", "latest"),
		forged("a record that nests 100,000 lists", 2, "", []string{`"schema_version": 1`, `"schema_version": 1, "reasons": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)}, "show", "latest"),
		slow(forged("a record with a text of 50 MB", 0, "", []string{`"hypothesis": "`, `"hypothesis": "` + strings.Repeat("x ", 25<<20)}, "show", "latest")),
		slow(damage("samples that expand to 2 GB", 1, "more than", func(a *arena) []string {
			a.write(a.inRecord("samples.json.gz"), gzipBomb(a))
			a.resign()
			return []string{"show", "latest", "--file", "samples.json"}
		})),
		damage("a ledger to import has a link", 1, "", func(a *arena) []string {
			a.foreign(func(run string) { a.link(filepath.Join(run, "ptxas.log"), filepath.Join(a.outside, "secret.txt")) })
			return []string{"ledger", "import", "foreign"}
		}),
		damage("a ledger to import has a pipe", 1, "", func(a *arena) []string {
			a.foreign(func(run string) { a.pipe(filepath.Join(run, "run.json")) })
			return []string{"ledger", "import", "foreign"}
		}),
		damage("a ledger to import changes a record", 1, "", func(a *arena) []string {
			a.foreign(func(run string) { a.change(filepath.Join(run, "run.json"), `"not-measured"`, `"merge"`) })
			return []string{"ledger", "import", "foreign"}
		}),
		{kind: "record", name: "a file of a record is asked for outside", exit: 2, want: "", stage: func(*arena) []string {
			return []string{"show", "latest", "--file", "../../../../outside/secret.txt"}
		}},
		{kind: "record", name: "a record outside is asked for", exit: 2, want: "", stage: func(*arena) []string { return []string{"show", "../../outside"} }},
		{kind: "record", name: "a record outside is removed", exit: 2, want: "", stage: func(*arena) []string {
			return []string{"ledger", "remove", "../../outside"}
		}},
		{kind: "record", name: "all records are removed by an empty name", exit: 2, want: "", stage: func(*arena) []string { return []string{"ledger", "remove", ""} }},
	}
}

// hold locks a folder for the time of the test, as another user could.
func (a *arena) hold(dir string) {
	a.t.Helper()
	f, err := os.Open(dir)
	a.must(err)
	a.must(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	a.t.Cleanup(func() { f.Close() })
}

// foreign copies the ledger to the folder foreign and changes a record of it, with right checksums.
func (a *arena) foreign(change func(run string)) {
	a.t.Helper()
	a.must(os.CopyFS(a.at("foreign"), os.DirFS(a.at(".attune"))))
	change(filepath.Join("foreign", "runs", filepath.Base(a.record)))
}

// forgeRow makes the index say that the recorded run was merged, with a right checksum of the row.
func (a *arena) forgeRow() {
	a.t.Helper()
	db, err := sql.Open("sqlite", a.at(".attune/index.sqlite"))
	a.must(err)
	defer db.Close()
	var text []string
	fields := make([]string, 11)
	var p50, ratio sql.NullFloat64
	a.must(db.QueryRow("SELECT id, time, kernel, variant, stage, device, arch, 'merge', code_hash, git_sha, shape, p50_us, parent_ratio FROM runs").Scan(
		&fields[0], &fields[1], &fields[2], &fields[3], &fields[4], &fields[5], &fields[6], &fields[7], &fields[8], &fields[9], &fields[10], &p50, &ratio))
	for _, f := range append(fields, "", "") {
		text = append(text, fmt.Sprintf("%d %s", len(f), f))
	}
	_, err = db.Exec("UPDATE runs SET verdict = 'merge', checksum = ?", fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(text, "")))))
	a.must(err)
}
