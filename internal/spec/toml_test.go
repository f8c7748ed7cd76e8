package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"pgregory.net/rapid"
)

// linesOf lists every key and item of a tree with its line, ordered by path.
func linesOf(n *node, path string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(n.table)) {
		child := n.table[key]
		all = append(all, fmt.Sprintf("%s%s:%d", path, key, child.line))
		all = append(all, linesOf(child, path+key+".")...)
	}
	for i, child := range n.array {
		all = append(all, fmt.Sprintf("%s%d:%d", path, i, child.line))
		all = append(all, linesOf(child, fmt.Sprintf("%s%d.", path, i))...)
	}
	return all
}

func TestLines(t *testing.T) {
	check := func(name, text string, want ...string) {
		t.Helper()
		root, err := readTOML(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if got := linesOf(root, ""); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want)
		}
	}
	check("empty", "")
	check("keys", "a = 1\n\n# b = 2\nc = 3 # d = 4\n", "a:1", "c:4")
	check("no line end", "a = 1\nb = 2", "a:1", "b:2")
	check("trailing comment", "a = 1 # end", "a:1")
	check("CRLF and byte order mark", "\xef\xbb\xbfa = 1\r\n# x\r\nb = 2\r\n", "a:1", "b:3")
	check("tables", "[a]\nx = 1\n[b.c]\ny = 2\n[b]\nz = 3\n", "a:1", "a.x:2", "b:5", "b.c:3", "b.c.y:4", "b.z:6")
	check("arrays of tables", "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n[[a.c]]\nz = 4\n",
		"a:1", "a.0:1", "a.0.x:2", "a.1:3", "a.1.b:5", "a.1.b.y:6", "a.1.c:7", "a.1.c.0:7", "a.1.c.0.z:8", "a.1.x:4")
	check("dotted keys", "a.b.c = 1\na . d = 2\n", "a:1", "a.b:1", "a.b.c:1", "a.d:2")
	check("quoted keys", `"a b" = 1
'c"d' = 2
"e\u0066\"=" = 3
"" = 4
["x.y" . 'z]']
w = 5
`, ":4", "a b:1", "c\"d:2", "ef\"=:3", "x.y:5", "x.y.z]:5", "x.y.z].w:6")
	check("inline tables", "a = { b = 1, c = { d = 2 }, e.f = 3 }\ng = {}\nh = 4\n",
		"a:1", "a.b:1", "a.c:1", "a.c.d:1", "a.e:1", "a.e.f:1", "g:2", "h:3")
	check("multi-line inline tables", "a = {\n  b = 1, # one\n  c = 2,\n}\nd = 3\n", "a:1", "a.b:2", "a.c:3", "d:5")
	check("multi-line arrays", "a = [ # [\n  1,\n\n  [2,\n   3], { b = \"]\" },\n]\nc = []\n",
		"a:1", "a.0:2", "a.1:4", "a.1.0:4", "a.1.1:5", "a.2:5", "a.2.b:5", "c:7")
	check("strings", `a = "x # \" = y"
b = 'c:\'
d = """
e = 1
\""" "" \\"""
f = '''
g = 2
\'''
h = """i""""" # two quotes are its own
j = ''
k = 3
`, "a:1", "b:2", "d:3", "f:6", "h:9", "j:10", "k:11")
	check("scalars", "a = 1979-05-27 07:32:00 # b = 1\nc = [1979-05-27 07:32:00,\n true]\nd = -inf\n",
		"a:1", "c:2", "c.0:2", "c.1:3", "d:4")
}

func TestNodeKinds(t *testing.T) {
	root, err := readTOML("a = [{}, [], 'x', 1, 1.5, true, 1979-05-27]\n[[b]]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a table", "an array", "a string", "an integer", "a float", "a boolean", "a date or time"}
	for i, n := range root.table["a"].array {
		if n.kind() != want[i] {
			t.Errorf("item %d is %s; want %s", i, n.kind(), want[i])
		}
	}
	if kind := root.table["b"].kind(); kind != "an array" {
		t.Errorf("an array of tables is %s", kind)
	}
}

func TestInvalidTOML(t *testing.T) {
	check := func(text, want string) {
		t.Helper()
		if _, err := readTOML(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	check("a = 1\nb = \n", "kernel.toml:2: not TOML: expected value but found '\\n' instead")
	check("a = 1\n\na = 2\n", "kernel.toml:3: not TOML: Key 'a' has already been defined")
	check("a = 0x\n", `kernel.toml:1: not TOML: not a hexadecimal number: '0x\n'`)
	check("a = 1\n[shapes\nb = 1\n", "kernel.toml:2: not TOML: expected '.' or ']' to end table name, but got '\\n' instead")
	check("a = 18446744073709551615\n", "kernel.toml:1: not TOML: 18446744073709551615 is out of range for int64; write a larger number as a string, in double quotes")
	check("=", "kernel.toml:1: not TOML: unexpected '=': key name appears blank")
}

// TestLinesOfAnyFile generates files in which every number is the number of its line.
func TestLinesOfAnyFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &tomlWriter{t: t}
		w.assignments(rapid.IntRange(0, 3).Draw(t, "keys"))
		for range rapid.IntRange(0, 4).Draw(t, "tables") {
			w.header()
			w.assignments(rapid.IntRange(0, 3).Draw(t, "keys"))
		}
		text := w.numbered()
		root, err := readTOML(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if found := wrongLines(root); len(found) > 0 {
			t.Fatalf("%v in\n%s", found, text)
		}
	})
}

// wrongLines returns the numbers in a tree that are not on their line.
func wrongLines(n *node) (found []string) {
	if value, ok := n.value.(int64); ok && int(value) != n.line {
		found = append(found, fmt.Sprintf("%d is on line %d", value, n.line))
	}
	for _, child := range n.table {
		found = append(found, wrongLines(child)...)
	}
	for _, child := range n.array {
		found = append(found, wrongLines(child)...)
	}
	return found
}

// tomlWriter generates random TOML with an @ for each number.
type tomlWriter struct {
	t    *rapid.T
	text strings.Builder
	next int
}

func (w *tomlWriter) pick(from ...string) string {
	return rapid.SampledFrom(from).Draw(w.t, "text")
}

// key returns an unused key.
func (w *tomlWriter) key() string {
	w.next++
	return fmt.Sprintf(w.pick("k%d", "\"k %d\"", "'k=%d'", "k.k%d", "\"\\\"]\".k%d", "k . k%d"), w.next)
}

func (w *tomlWriter) header() {
	w.next++
	w.text.WriteString(fmt.Sprintf(w.pick("[t%d]", "[[list]]#%d", "[ t%d.'x.y' ]", "[[t%d.list]]"), w.next))
	w.lineEnd()
}

func (w *tomlWriter) lineEnd() {
	w.text.WriteString(w.pick("\n", "\r\n", " # [x] = 'y\n", "\n\n", "\n# \"\"\"\n"))
}

func (w *tomlWriter) assignments(n int) {
	for range n {
		w.text.WriteString(w.key() + w.pick("=", " = "))
		w.value(3)
		w.lineEnd()
	}
}

func (w *tomlWriter) value(depth int) {
	if depth == 0 {
		w.text.WriteString("@")
		return
	}
	gap := func() { w.text.WriteString(w.pick("", " ", "\n", " # ]}\n", "\r\n")) }
	switch rapid.IntRange(0, 4).Draw(w.t, "kind") {
	case 0:
		w.text.WriteString("[")
		for range rapid.IntRange(0, 3).Draw(w.t, "items") {
			gap()
			w.value(depth - 1)
			gap()
			w.text.WriteString(",")
		}
		gap()
		w.text.WriteString("]")
	case 1:
		w.text.WriteString("{ ")
		for i := range rapid.IntRange(0, 3).Draw(w.t, "items") {
			if i > 0 {
				w.text.WriteString(",")
				gap()
			}
			w.text.WriteString(w.key() + " = ")
			w.value(depth - 1)
			gap()
		}
		w.text.WriteString("}")
	case 2:
		w.text.WriteString(w.pick(`"a\"b # c"`, `'a\'`, `""`, "\"\"\"\na = 1\n\\\"\"\"\"\"", "'''\n[x]\n''''", `""" \\"""`,
			"2001-02-03 04:05:06", "1.5", "true"))
	default:
		w.text.WriteString("@")
	}
}

// numbered replaces each @ by its line.
func (w *tomlWriter) numbered() string {
	lines := strings.Split(w.text.String(), "\n")
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "@", fmt.Sprint(i+1))
	}
	return strings.Join(lines, "\n")
}

// FuzzLines checks that the scan and the library find the same keys and items.
func FuzzLines(f *testing.F) {
	f.Add("a = [1, { b = 2 }]\n[c.d]\n'e f' = '''x'''\n[[g]]\nh = 1979-05-27 07:32:00\n")
	f.Add("a = \"\"\"x\\\\\"\"\"\"\"\n")
	f.Add("\xff\xfe[a]\nb=1")
	f.Add("[}{[[\"")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			return
		}
		root := scanLines(text) // must terminate for any text
		var values map[string]any
		if _, err := toml.Decode(text, &values); err != nil {
			return
		}
		sameTree(t, root, values, "")
	})
}

func sameTree(t *testing.T, n *node, value any, path string) {
	switch value := value.(type) {
	case map[string]any:
		if len(n.table) != len(value) {
			t.Fatalf("%q: %d keys scanned, %d parsed", path, len(n.table), len(value))
		}
		for key, v := range value {
			if n.table[key] == nil {
				t.Fatalf("%q: key %q not scanned", path, key)
			}
			if key != "" { // below an empty key the library loses items of arrays
				sameTree(t, n.table[key], v, path+"."+key)
			}
		}
	case []map[string]any:
		if len(n.array) != len(value) {
			t.Fatalf("%q: %d tables scanned, %d parsed", path, len(n.array), len(value))
		}
		for i, v := range value {
			sameTree(t, n.array[i], v, fmt.Sprintf("%s.%d", path, i))
		}
	case []any:
		if len(n.array) != len(value) {
			t.Fatalf("%q: %d items scanned, %d parsed", path, len(n.array), len(value))
		}
		for i, v := range value {
			sameTree(t, n.array[i], v, fmt.Sprintf("%s.%d", path, i))
		}
	default:
		if n.table != nil || n.array != nil {
			t.Fatalf("%q: scanned %v, parsed %v", path, linesOf(n, ""), value)
		}
	}
}
