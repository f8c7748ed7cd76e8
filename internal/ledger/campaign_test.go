package ledger

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// damage is one way to harm a ledger, and the path that Verify must name for it.
type damage struct {
	name string
	path string // start of a problem; empty if only an earlier root gives the damage away
	do   func(dir string) error
}

// victim makes a ledger with records of all kinds and a removed one.
func victim(t *testing.T) *Ledger {
	t.Helper()
	l, runs := contenders(t, 4)
	recordBench(t, l, 10)
	recordBench(t, l, 11)
	promote(t, l, runs[0], "sm_90")
	promote(t, l, runs[1], "sm_90")
	rollBack(t, l, "sm_90")
	if _, err := l.Remove(t.Context(), runs[3].ID); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, l, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l
}

// Every damage is reported with its path. A rewritten chain is reported by the root.
func TestDamageIsNamed(t *testing.T) {
	l := victim(t)
	r, err := l.Verify(t.Context())
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	l.Close()
	all := slices.Concat(fileDamages(t, l), recordDamages(t, l), swapDamages(t, l), chainDamages(t, l), partDamages(l))
	if len(all) < 300 {
		t.Errorf("only %d damages", len(all))
	}
	found := 0
	if testing.Short() {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:len(all)/10]
	}
	for i, d := range all {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := errors.Join(os.CopyFS(dir, os.DirFS(l.dir)), d.do(dir)); err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		if isFound(t, d, dir, r.Root) {
			found++
		}
	}
	t.Logf("%d of %d damages were found", found, len(all))
}

func isFound(t *testing.T, d damage, dir, root string) bool {
	t.Helper()
	hurt := open(t, dir)
	defer hurt.Close()
	r, err := hurt.Verify(t.Context())
	if err != nil {
		t.Errorf("%s: Verify: %v", d.name, err)
		return false
	}
	if _, same := r.Since(root); d.path == "" && !same {
		return true
	}
	for _, p := range r.Problems {
		if where, _, _ := strings.Cut(p.String(), ": "); d.path != "" && where == d.path {
			return true
		}
	}
	t.Errorf("%s: no problem of %q in %v", d.name, d.path, r.Problems)
	return false
}

// fileDamages harms each file in each way.
func fileDamages(t *testing.T, l *Ledger) []damage {
	t.Helper()
	var all []damage
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == indexName {
			return err
		}
		file, err := filepath.Rel(l.dir, path)
		if err != nil {
			return err
		}
		for name, change := range map[string]func([]byte) []byte{
			"flip first":    func(b []byte) []byte { b[0] ^= 1; return b },
			"flip middle":   func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b },
			"flip last":     func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b },
			"cut one":       func(b []byte) []byte { return b[:len(b)-1] },
			"cut half":      func(b []byte) []byte { return b[:len(b)/2] },
			"empty":         func([]byte) []byte { return nil },
			"append NUL":    func(b []byte) []byte { return append(b, 0) },
			"append line":   func(b []byte) []byte { return append(b, '\n') },
			"append itself": func(b []byte) []byte { return slices.Concat(b, b) },
		} {
			all = append(all, damage{name + " " + file, file, func(dir string) error { return edit(filepath.Join(dir, file), change) }})
		}
		for name, put := range map[string]func(path string) error{
			"directory": func(path string) error { return os.Mkdir(path, 0o755) },
			"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o644) },
			"dangling":  func(path string) error { return os.Symlink("nowhere", path) },
			"nothing":   func(string) error { return nil },
		} {
			all = append(all, damage{name + " for " + file, file, func(dir string) error {
				path := filepath.Join(dir, file)
				return errors.Join(os.Remove(path), put(path))
			}})
		}
		all = append(all, damage{"link for " + file, file, func(dir string) error {
			path := filepath.Join(dir, file)
			return errors.Join(os.Rename(path, path+"~"), os.Rename(path+"~", filepath.Join(dir, "elsewhere")), os.Symlink(filepath.Join(dir, "elsewhere"), path))
		}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// edit changes the bytes of a file.
func edit(path string, change func([]byte) []byte) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.WriteFile(path, change(bytes.Clone(data)), 0o644))
}

// forge changes a file of a record and makes its checksums fit.
func forge(record, name string, change func([]byte) []byte) error {
	if err := edit(filepath.Join(record, name), change); err != nil {
		return err
	}
	files := map[string][]byte{}
	found, err := os.ReadDir(record)
	if err != nil {
		return err
	}
	for _, d := range found {
		if d.Name() != sumsName {
			if files[d.Name()], err = os.ReadFile(filepath.Join(record, d.Name())); err != nil {
				return err
			}
		}
	}
	return edit(filepath.Join(record, sumsName), func([]byte) []byte { return []byte(sumFiles(files).String()) })
}

// recordDamages harms each record as a whole, and forges it.
func recordDamages(t *testing.T, l *Ledger) []damage {
	t.Helper()
	var all []damage
	for _, record := range slices.Sorted(maps.Keys(readChain(t, l).live)) {
		kind, id, _ := strings.Cut(record, "/")
		document := map[string]string{runsName: runName, benchesName: benchName, championsName: championName}[kind]
		other := kind + "/" + NewID(dawn, "copy")
		add := func(name, path string, do func(dir, record string) error) {
			all = append(all, damage{name + " " + record, path, func(dir string) error { return do(dir, filepath.Join(dir, record)) }})
		}
		add("remove", record, func(_, path string) error { return os.RemoveAll(path) })
		add("rename", record, func(dir, path string) error { return os.Rename(path, filepath.Join(dir, other)) })
		add("rename and look for", other+"/"+document, func(dir, path string) error { return os.Rename(path, filepath.Join(dir, other)) })
		add("misname", kind+"/x"+id, func(dir, path string) error { return os.Rename(path, filepath.Join(dir, kind, "x"+id)) })
		add("copy", other+"/"+document, func(dir, path string) error { return os.CopyFS(filepath.Join(dir, other), os.DirFS(path)) })
		add("link", record, func(dir, path string) error {
			away := filepath.Join(dir, "away")
			return errors.Join(os.Rename(path, away), os.Symlink(away, path))
		})
		add("empty", record+"/"+sumsName, func(_, path string) error { return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o755)) })
		add("file for", record, func(_, path string) error { return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o644)) })
		add("file in", record+"/more", func(_, path string) error { return os.WriteFile(filepath.Join(path, "more"), nil, 0o644) })
		add("directory in", record+"/more", func(_, path string) error { return os.Mkdir(filepath.Join(path, "more"), 0o755) })
		add("forged file in", record+"/"+sumsName, func(_, path string) error {
			return errors.Join(os.WriteFile(filepath.Join(path, "more"), nil, 0o644), forge(path, document, func(b []byte) []byte { return b }))
		})
		add("forge", record+"/"+sumsName, func(_, path string) error {
			return forge(path, document, func(b []byte) []byte { return bytes.Replace(b, []byte("sdpa"), []byte("adps"), 1) })
		})
		add("forge and drop the index", record+"/"+sumsName, func(dir, path string) error {
			return errors.Join(os.Remove(filepath.Join(dir, indexName)), forge(path, document, func(b []byte) []byte { return append(b, ' ') }))
		})
		add("forge, chain and all,", "", func(dir, path string) error {
			return errors.Join(forge(path, document, func(b []byte) []byte { return append(b, ' ') }), rechain(dir, func(k link) (link, bool) {
				if k.record == record {
					text, _ := os.ReadFile(filepath.Join(path, sumsName))
					k.seal = sumBytes(text)
				}
				return k, true
			}))
		})
		add("remove, chain and all,", "", func(dir, path string) error {
			return errors.Join(os.RemoveAll(path), rechain(dir, func(k link) (link, bool) { return k, k.record != record }))
		})
		add("unchain", record, func(dir, _ string) error {
			return rechain(dir, func(k link) (link, bool) { return k, k.record != record })
		})
	}
	return all
}

func readChain(t *testing.T, l *Ledger) *chain {
	t.Helper()
	c, err := l.chain.parseSound()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rechain writes a chain of the links that change keeps, with the right hashes.
func rechain(dir string, change func(link) (link, bool)) error {
	f := &chainFile{path: filepath.Join(dir, chainName)}
	before, err := f.parse()
	if err != nil {
		return err
	}
	after := newChain()
	for _, k := range before.links {
		if k, ok := change(k); ok {
			if err := after.push(k.action, k.record, k.seal); err != nil {
				return err
			}
		}
	}
	return f.replace(after)
}

// swapDamages exchanges records, and files of records.
func swapDamages(t *testing.T, l *Ledger) []damage {
	t.Helper()
	swap := func(a, b string) error {
		return errors.Join(os.Rename(a, a+"~"), os.Rename(b, a), os.Rename(a+"~", b))
	}
	var all []damage
	for kind, files := range map[string][]string{
		runsName:      {runName, "report.md", sumsName, ""},
		benchesName:   {benchName, sumsName, ""},
		championsName: {championName, sumsName, ""},
	} {
		ids := names(t, filepath.Join(l.dir, kind))
		for i := range ids {
			for j := range i {
				for _, file := range files {
					a, b := filepath.Join(kind, ids[i], file), filepath.Join(kind, ids[j], file)
					path := a
					if file == "" {
						path = filepath.Join(a, sumsName)
					}
					all = append(all, damage{"swap " + a + " and " + b, path, func(dir string) error {
						return swap(filepath.Join(dir, a), filepath.Join(dir, b))
					}})
				}
			}
		}
	}
	return all
}

// chainDamages cuts, reorders and rewrites lines of the chain.
func chainDamages(t *testing.T, l *Ledger) []damage {
	t.Helper()
	c := readChain(t, l)
	links := c.links
	var all []damage
	add := func(name, path string, change func(lines []string) []string) {
		all = append(all, damage{name, path, func(dir string) error {
			return edit(filepath.Join(dir, chainName), func(b []byte) []byte {
				return []byte(strings.Join(change(strings.SplitAfter(string(b), "\n")), ""))
			})
		}})
	}
	for i, k := range links {
		line := i + 1     // of the slice, which has the format first
		first := k.record // that is missing in the chain, or that the chain still has
		if _, live := c.live[first]; !live && k.action == added {
			first = links[i+1].record
		}
		add(fmt.Sprintf("cut the chain before line %d", line), first, func(lines []string) []string { return lines[:line] })
		if i < len(links)-1 {
			add(fmt.Sprintf("drop line %d", line), chainName, func(lines []string) []string { return slices.Delete(lines, line, line+1) })
			add(fmt.Sprintf("exchange line %d and the next", line), chainName, func(lines []string) []string {
				lines[line], lines[line+1] = lines[line+1], lines[line]
				return lines
			})
		}
		add(fmt.Sprintf("line %d twice", line), chainName, func(lines []string) []string { return slices.Insert(lines, line, lines[line]) })
		add(fmt.Sprintf("other action in line %d", line), chainName, func(lines []string) []string {
			other := map[string]string{added: removed, removed: added}[k.action]
			lines[line] = strings.Replace(lines[line], k.action, other, 1)
			return lines
		})
		add(fmt.Sprintf("upper case in line %d", line), chainName, func(lines []string) []string {
			lines[line] = strings.ToUpper(lines[line])
			return lines
		})
	}
	add("no format", chainName, func(lines []string) []string { return lines[1:] })
	add("other format", chainName, func(lines []string) []string { return append([]string{chainFormat + "2\n"}, lines[1:]...) })
	all = append(all, damage{"other order with right hashes", "", func(dir string) error {
		f := &chainFile{path: filepath.Join(dir, chainName)}
		after := newChain()
		for _, i := range slices.Concat([]int{1, 0}, indices(2, len(links))) {
			if err := after.push(links[i].action, links[i].record, links[i].seal); err != nil {
				return err
			}
		}
		return f.replace(after)
	}})
	return all
}

func indices(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// partDamages harms the parts of the ledger.
func partDamages(l *Ledger) []damage {
	var all []damage
	for _, name := range []string{runsName, benchesName, championsName} {
		all = append(all, damage{"link for " + name, name, func(dir string) error {
			away := filepath.Join(dir, "away")
			return errors.Join(os.Rename(filepath.Join(dir, name), away), os.Symlink(away, filepath.Join(dir, name)))
		}})
	}
	for record := range func() map[string]int { c, _ := l.chain.parse(); return c.live }() {
		kind, _, _ := strings.Cut(record, "/")
		all = append(all, damage{"no " + kind + ", with " + record, record, func(dir string) error { return os.RemoveAll(filepath.Join(dir, kind)) }})
	}
	return append(all, damage{"link for the index", indexName, func(dir string) error {
		away := filepath.Join(dir, "away")
		return errors.Join(os.Rename(filepath.Join(dir, indexName), away), os.Symlink(away, filepath.Join(dir, indexName)))
	}})
}

// An index of another ledger is brought up to date. Rows that were changed together with their
// checksums are reported.
func TestReplacedIndex(t *testing.T) {
	l := victim(t)
	entries, err := open(t, l.dir).List(t.Context(), Filter{OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := indexed(t, 5)
	text, err := os.ReadFile(filepath.Join(other, indexName))
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, l.indexPath(), string(text))
	fresh := open(t, l.dir)
	wantRuns(t, fresh, entries)
	wantProblems(t, fresh, len(entries))
	fresh.Close()

	forged := entries[0]
	forged.Verdict = "merge"
	db, err := sql.Open("sqlite", l.indexPath())
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("UPDATE runs SET verdict = ?, checksum = ? WHERE id = ?", forged.Verdict, checksum(forged), forged.ID)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, open(t, l.dir), len(entries)-1, "runs/"+forged.ID+"/run.json: the index differs from it")
}
