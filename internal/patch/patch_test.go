package patch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

const source = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"

func folder() fstest.MapFS {
	return fstest.MapFS{
		"k.cu":       {Data: []byte(source)},
		"sub/h.cuh":  {Data: []byte("no newline")},
		"kept.cuh":   {Data: []byte("kept\n")},
		"link.cuh":   {Data: []byte("kept.cuh"), Mode: fs.ModeSymlink},
		"away/x.cuh": {Data: []byte("x\n")},
	}
}

// apply parses and applies a diff.
func apply(diff string, to fs.FS) (map[string][]byte, error) {
	p, err := Parse([]byte(diff))
	if err != nil {
		return nil, err
	}
	return p.Apply(to)
}

func TestApply(t *testing.T) {
	t.Parallel()
	const plain = "--- k.cu\n+++ k.cu\n"
	for name, c := range map[string]struct{ diff, file, want string }{
		"git": {
			"diff --git a/k.cu b/k.cu\nindex 1..2 100644\n--- a/k.cu\n+++ b/k.cu\n@@ -2,3 +2,3 @@ void f()\n two\n-three\n+3\n four\n",
			"k.cu", "one\ntwo\n3\nfour\nfive\nsix\nseven\n",
		},
		"plain with times": {
			"--- k.cu\t2026-01-01\n+++ k.cu\t2026-01-02\n@@ -7 +7 @@\n-seven\n+7\n",
			"k.cu", "one\ntwo\nthree\nfour\nfive\nsix\n7\n",
		},
		"prefix of the folder":  {"--- ./k.cu\n+++ ./k.cu\n@@ -1 +1 @@\n-one\n+1\n", "k.cu", "1\n" + source[4:]},
		"another line":          {plain + "@@ -5,2 +5,1 @@\n one\n-two\n", "k.cu", "one\n" + source[8:]},
		"far away":              {plain + "@@ -999999999,2 +1 @@\n one\n-two\n", "k.cu", "one\n" + source[8:]},
		"line zero":             {plain + "@@ -0,1 +0,1 @@\n-one\n+1\n", "k.cu", "1\n" + source[4:]},
		"two hunks, both moved": {plain + "@@ -2 +2 @@\n-three\n+3\n@@ -5 +5 @@\n-six\n+6\n", "k.cu", "one\ntwo\n3\nfour\nfive\n6\nseven\n"},
		"insertion":             {plain + "@@ -1,0 +2,2 @@\n+a\n+b\n", "k.cu", "one\na\nb\n" + source[4:]},
		"insertion at the top":  {plain + "@@ -0,0 +1 @@\n+a\n", "k.cu", "a\n" + source},
		"stripped blank":        {"--- e\n+++ e\n@@ -1,2 +1,2 @@\n\n-x\n+y\n", "e", "\ny\n"},
		"fence and prose":       {"I would try:\n```diff\n" + plain + "@@ -1 +1 @@\n-one\n+1\n```\nIt saves a load.\n", "k.cu", "1\n" + source[4:]},
		"prose behind a line":   {plain + "@@ -1 +1 @@\n-one\n+1\n\n- it saves a load\n", "k.cu", "1\n" + source[4:]},
		"no newline in the end": {plain + "@@ -1 +1 @@\n-one\n+1", "k.cu", "1\n" + source[4:]},
		"file without newline": {
			"--- a/sub/h.cuh\n+++ b/sub/h.cuh\n@@ -1 +1 @@\n-no newline\n\\ No newline at end of file\n+newline\n",
			"sub/h.cuh", "newline\n",
		},
		"file loses its newline": {"--- kept.cuh\n+++ kept.cuh\n@@ -1 +1 @@\n-kept\n+lost\n\\ No newline at end of file\n", "kept.cuh", "lost"},
		"context without newline": {
			"--- a/sub/h.cuh\n+++ b/sub/h.cuh\n@@ -1 +1,2 @@\n+first\n no newline\n\\ No newline at end of file\n",
			"sub/h.cuh", "first\nno newline",
		},
		"new file":           {"--- /dev/null\n+++ b/new/n.cuh\n@@ -0,0 +1,2 @@\n+a\n+b\n", "new/n.cuh", "a\nb\n"},
		"new file, plain":    {"new file mode 100644\n--- /dev/null\n+++ n.cuh\n@@ -0,0 +1 @@\n+a\n", "n.cuh", "a\n"},
		"folder named a":     {"--- away/x.cuh\n+++ away/x.cuh\n@@ -1 +1 @@\n-x\n+y\n", "away/x.cuh", "y\n"},
		"dashes in the text": {"--- d\n+++ d\n@@ -1,2 +1,2 @@\n--- a\n+++ b\n x\n", "d", "++ b\nx\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := folder()
			all["e"], all["d"] = &fstest.MapFile{Data: []byte("\nx\n")}, &fstest.MapFile{Data: []byte("-- a\nx\n")}
			got, err := apply(c.diff, all)
			if err != nil || len(got) != 1 || string(got[c.file]) != c.want {
				t.Errorf("%q, %v", got, err)
			}
			p, err := Parse([]byte(c.diff))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = apply(p.String(), all); err != nil || string(got[c.file]) != c.want || !strings.Contains(p.String(), "+++ b/"+c.file+"\n") {
				t.Errorf("as %q: %q, %v", p.String(), got, err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	change := func(name string) string { return "--- " + name + "\n+++ " + name + "\n@@ -1 +1 @@\n-one\n+1\n" }
	create := func(name string) string { return "--- /dev/null\n+++ " + name + "\n@@ -0,0 +1 @@\n+x\n" }
	for name, c := range map[string]struct{ diff, want string }{
		"nothing":           {"", "the diff changes no file"},
		"prose":             {"try harder\n", "the diff changes no file"},
		"zero byte":         {"--- k.cu\x00", "byte 8 of the diff is 0"},
		"absolute":          {change("/etc/passwd"), `line 2 of the diff: the path "/etc/passwd" is absolute`},
		"absolute git":      {"--- a//etc/passwd\n+++ b//etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", `the path "/etc/passwd" is absolute`},
		"parent":            {change("../k.cu"), `the path "../k.cu" does not name a file of the kernel's folder`},
		"parent inside":     {change("sub/../k.cu"), "does not name a file"},
		"created in parent": {create("b/../../x.cuh"), `the path "../../x.cuh" does not name a file`},
		"the folder itself": {change("./."), "does not name a file"},
		"empty":             {"--- a/\n+++ b/\n@@ -1 +1 @@\n-x\n+y\n", `the path "" does not name a file`},
		"quoted":            {change(`"k\303.cu"`), "has quotes, backslashes or control characters"},
		"windows":           {change(`..\k.cu`), "has quotes, backslashes or control characters"},
		"bell":              {change("k\a.cu"), `"k\a.cu" has quotes, backslashes or control characters`},
		"missing":           {change("x.cu"), "there is no file x.cu; paths are relative to the kernel's folder"},
		"missing folder":    {change("no/x.cu"), "there is no file no/x.cu"},
		"below a file":      {create("k.cu/x.cuh"), "k.cu is not a folder"},
		"a folder":          {change("sub"), "sub is not a file"},
		"link":              {change("link.cuh"), "link.cuh is a link; a patch must not change it"},
		"below a link":      {create("link.cuh/x.cuh"), "link.cuh is a link"},
		"exists":            {create("k.cu"), "k.cu exists; a patch that creates it does not fit"},
		"deletes":           {"--- k.cu\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", `it must not delete "k.cu"`},
		"deletes by git":    {"deleted file mode 100644\n", "line 1 of the diff: a patch changes and adds files; it must not delete one"},
		"renames":           {"--- k.cu\n+++ l.cu\n@@ -1 +1 @@\n-one\n+1\n", `"k.cu" becomes "l.cu": a patch must not rename a file`},
		"renames by git":    {"rename from k.cu\nrename to l.cu\n", "it must not rename one"},
		"copies":            {"copy from k.cu\ncopy to l.cu\n", "it must not copy one"},
		"creates a link":    {"diff --git a/l b/l\nnew file mode 120000\n" + create("l"), "line 2 of the diff: a patch must not create a link"},
		"submodule":         {"new file mode 160000\n", "must not create a submodule"},
		"mode":              {"old mode 100644\nnew mode 100755\n", "must not change the mode of a file"},
		"binary":            {"GIT binary patch\nliteral 4\n", "a binary patch is not accepted"},
		"binary text":       {"Binary files a/x and b/x differ\n", "a binary patch is not accepted"},
		"twice":             {change("k.cu") + change("k.cu"), "line 6 of the diff: k.cu is changed twice"},
		"no hunks":          {"--- k.cu\n+++ k.cu\n", "k.cu has no hunks"},
		"no file":           {"@@ -1 +1 @@\n-one\n+1\n", "line 1 of the diff: a hunk without a file"},
		"header":            {"--- k.cu\n+++ k.cu\n@@ -1;2 @@\n", `line 3 of the diff: "@@ -1;2 @@" is not a header`},
		"long path":         {change("/" + strings.Repeat("x", 200)), "x…"},
		"hunk too short":    {"--- k.cu\n+++ k.cu\n@@ -1,3 +1,2 @@\n one\n-two\n", "the hunk of line 3 ends after 2 of 3 old and 1 of 2 new lines"},
		"hunk with text":    {"--- k.cu\n+++ k.cu\n@@ -1,2 +1,2 @@\n one\ntwo\n", "line 5 of the diff: the hunk of line 3 ends after 1 of 2 old"},
		"hunk too long":     {"--- k.cu\n+++ k.cu\n@@ -1,1 +1,1 @@\n-one\n+1\n+2\n", "line 6 of the diff: the hunk of line 3 has more lines than its header says"},
		"hunk unbalanced":   {"--- k.cu\n+++ k.cu\n@@ -1,1 +1,2 @@\n one\n-two\n+x\n", "has more lines than its header says: 1 old and 2 new"},
		"other text":        {"--- k.cu\n+++ k.cu\n@@ -2,2 +2 @@\n two\n-4\n", `k.cu:3: the hunk of line 3 of the diff does not fit: the line is "three", the diff has "4"`},
		"behind the end":    {"--- k.cu\n+++ k.cu\n@@ -7,2 +7 @@\n seven\n-eight\n", "k.cu: the hunk of line 3 of the diff does not fit: the file ends before line 8"},
		"overlap":           {"--- k.cu\n+++ k.cu\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n@@ -2 +2 @@\n-two\n+2\n", "k.cu:2: the hunk of line 7 of the diff does not fit: its lines belong to an earlier hunk"},
		"longer than file":  {"--- kept.cuh\n+++ kept.cuh\n@@ -1,2 +1,2 @@\n kept\n-x\n+y\n", "the file ends before line 2"},
		"insertion too far": {"--- k.cu\n+++ k.cu\n@@ -9,0 +10 @@\n+x\n", "k.cu:10: the hunk of line 3 of the diff does not fit"},
		"new with old":      {"--- /dev/null\n+++ n.cuh\n@@ -1 +1 @@\n-a\n+b\n", "the new file n.cuh has old lines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := apply(c.diff, folder())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// On disk a link is found by the folder's listing, whatever it leads to.
func TestLinkOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k.cu"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"l.cu": "k.cu", "d": "/", "gone": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"l.cu", "d/etc/passwd", "gone"} {
		if _, err := apply("--- "+name+"\n+++ "+name+"\n@@ -1 +1 @@\n-one\n+1\n", os.DirFS(dir)); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unreadable is a folder whose listings fail.
type unreadable struct{ fs.FS }

func (unreadable) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrPermission }

// listed is a folder whose files cannot be read.
type listed struct{ fstest.MapFS }

func (l listed) ReadFile(string) ([]byte, error) { return nil, fs.ErrPermission }

func TestUnreadableFolder(t *testing.T) {
	t.Parallel()
	const diff = "--- k.cu\n+++ k.cu\n@@ -1 +1 @@\n-one\n+1\n"
	for _, f := range []fs.FS{unreadable{folder()}, listed{folder()}} {
		if _, err := apply(diff, f); err == nil || !strings.Contains(err.Error(), "permission") {
			t.Errorf("%T: %v", f, err)
		}
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	o := Overlay(folder(), map[string][]byte{"k.cu": []byte("changed"), "new/n.cuh": []byte("new")})
	for name, want := range map[string]string{"k.cu": "changed", "new/n.cuh": "new", "kept.cuh": "kept\n"} {
		if got, err := fs.ReadFile(o, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	info, err := fs.Stat(o, "new/n.cuh")
	if err != nil || info.Name() != "n.cuh" || info.Size() != 3 || !info.Mode().IsRegular() || info.IsDir() || !info.ModTime().IsZero() || info.Sys() != nil {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := o.Open("none"); err == nil {
		t.Error("a missing file opens")
	}
}

// A diff that is made from an edit gives the edited file, also if the file has lines before it that
// the diff does not know.
func TestRandomEdits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "lines")
		var before []string
		for i := range size {
			before = append(before, fmt.Sprintf("line %d\n", i)) // all differ, so that a place is unique
		}
		var diff strings.Builder
		diff.WriteString("--- a/f\n+++ b/f\n")
		var after []string
		for at := 0; at < size; {
			keep := rapid.IntRange(0, 6).Draw(t, "keep")
			keep = min(keep, size-at)
			after = append(after, before[at:at+keep]...)
			at += keep
			gone := min(rapid.IntRange(1, 3).Draw(t, "gone"), size-at)
			if gone == 0 {
				break
			}
			added := rapid.SliceOfN(rapid.StringMatching(`[-+ @a-z]{0,5}\n`), 0, 3).Draw(t, "added")
			fmt.Fprintf(&diff, "@@ -%d,%d +%d,%d @@\n", at+1, gone, len(after)+1, len(added))
			for _, line := range before[at : at+gone] {
				diff.WriteString("-" + line)
			}
			for _, line := range added {
				diff.WriteString("+" + line)
			}
			after = append(after, added...)
			at += gone
		}
		if strings.Count(diff.String(), "\n") == 2 {
			return
		}
		extra := slices.Repeat([]string{"extra\n"}, rapid.IntRange(0, 5).Draw(t, "extra"))
		file := strings.Join(append(slices.Clone(extra), before...), "")
		got, err := apply(diff.String(), fstest.MapFS{"f": {Data: []byte(file)}})
		if want := strings.Join(append(extra, after...), ""); err != nil || string(got["f"]) != want {
			t.Fatalf("%v\n%s\ngot  %q\nwant %q", err, diff.String(), got["f"], want)
		}
	})
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte("--- k.cu\n+++ k.cu\n@@ -2,3 +2,3 @@ void f()\n two\n-three\n+3\n four\n"))
	f.Add([]byte("--- /dev/null\n+++ b/n.cuh\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"))
	f.Add([]byte("--- a/sub/h.cuh\n+++ b/sub/h.cuh\n@@ -1 +1,2 @@\n+first\n no newline\n\\ No newline\n"))
	f.Add([]byte("--- ../k.cu\n+++ ../k.cu\n@@ -999999999 +1 @@\n-x\n"))
	f.Fuzz(func(t *testing.T, diff []byte) {
		to := folder()
		got, err := apply(string(diff), to)
		if err != nil && strings.ContainsAny(err.Error(), "\n\x1b\a") {
			t.Errorf("the error is no plain line: %q", err)
		}
		for name := range got {
			if !fs.ValidPath(name) || name == "link.cuh" || filepath.IsAbs(name) {
				t.Errorf("it changes %q", name)
			}
		}
		if err == nil {
			p, _ := Parse(diff)
			if again, err := apply(p.String(), to); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
				t.Errorf("as %q: %q, %v", p.String(), again, err)
			}
		}
		if string(to["k.cu"].Data) != source {
			t.Error("the folder has changed")
		}
	})
}
