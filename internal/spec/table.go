package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// problem is one thing wrong in kernel.toml.
type problem struct {
	line int
	text string
}

// Error is a single line, whatever a name in the file is made of.
func (p problem) Error() string {
	return fmt.Sprintf("%s:%d: %s", File, p.line, strings.ReplaceAll(p.text, "\n", `\n`))
}

// problems collects what is wrong, so that one reading of the file shows all of it.
type problems []problem

func (p *problems) add(line int, format string, args ...any) {
	*p = append(*p, problem{line, fmt.Sprintf(format, args...)})
}

// err joins the problems in the order of their lines; it is nil if there are none.
func (p problems) err() error {
	slices.SortStableFunc(p, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var list []error
	for _, one := range p {
		list = append(list, one)
	}
	return errors.Join(list...)
}

// table reads one table of the file. Each of its methods asks for a key, reports what is wrong with it, and then
// returns a zero value; close reports the keys that nobody asked for.
type table struct {
	*node
	name  string // as a problem calls it, such as [[knob]]
	bad   *problems
	asked []string
}

// get returns the value of a key, nil if it is absent.
func (t *table) get(key string) *node {
	t.asked = append(t.asked, key)
	return t.table[key]
}

// need returns the value of a key that must be there.
func (t *table) need(key string) *node {
	n := t.get(key)
	if n == nil {
		t.bad.add(t.line, "%s has no %q", t.name, key)
	}
	return n
}

// ask gets a key that may be absent, or one that may not.
type ask func(t *table, key string) *node

var (
	optional ask = (*table).get
	required ask = (*table).need
)

// wrong reports that a key holds something else than it should.
func (t *table) wrong(key string, n *node, want string) {
	t.bad.add(n.line, "%q in %s is %s; want %s", key, t.name, n.kind(), want)
}

// at is the line of a key that was asked for, or of the table if it is absent.
func (t *table) at(key string) int {
	if n := t.table[key]; n != nil {
		return n.line
	}
	return t.line
}

// close reports the keys that are not known.
func (t *table) close() {
	for _, key := range slices.Sorted(maps.Keys(t.table)) {
		if !slices.Contains(t.asked, key) {
			t.bad.add(t.at(key), "unknown key %q in %s%s", key, t.name, hint(key, t.asked))
		}
	}
}

// text reads a string that is not blank.
func (t *table) text(key string) string {
	n := t.need(key)
	if n == nil {
		return ""
	}
	text, ok := n.value.(string)
	if !ok {
		t.wrong(key, n, "a string")
		return ""
	}
	if strings.TrimSpace(text) == "" {
		t.bad.add(n.line, "%q in %s is empty", key, t.name)
		return ""
	}
	return text
}

// maybe reads a string that may be absent, and is then empty.
func (t *table) maybe(key string) string {
	if t.get(key) == nil {
		return ""
	}
	return t.text(key)
}

// prose reads a string that is for people. It may be wrapped in the file; here it is one line.
func (t *table) prose(key string) string {
	return strings.Join(strings.Fields(t.text(key)), " ")
}

// integer reads a whole number from low to high.
func (t *table) integer(key string, low, high int) int {
	n := t.need(key)
	if n == nil {
		return 0
	}
	value, ok := n.value.(int64)
	if !ok {
		t.wrong(key, n, "an integer")
		return 0
	}
	if value < int64(low) || value > int64(high) {
		want := fmt.Sprintf("from %d to %d", low, high)
		if high == math.MaxInt {
			want = fmt.Sprintf("of at least %d", low)
		}
		t.bad.add(n.line, "%q in %s is %d; want a whole number %s", key, t.name, value, want)
	}
	return int(value)
}

// number reads a number that is within some bounds; want says which.
func (t *table) number(key string, within func(float64) bool, want string) float64 {
	n := t.need(key)
	if n == nil {
		return 0
	}
	value, ok := n.value.(float64)
	if whole, isInt := n.value.(int64); isInt {
		value, ok = float64(whole), true
	}
	if !ok {
		t.wrong(key, n, "a number")
		return 0
	}
	if !within(value) {
		t.bad.add(n.line, "%q in %s is %g; want a number %s", key, t.name, value, want)
	}
	return value
}

// positive reads a number above zero.
func (t *table) positive(key string) float64 {
	return t.number(key, func(x float64) bool { return x > 0 && x <= math.MaxFloat64 }, "above 0")
}

// list reads an array of at least one item and no two that are equal. The error of item says what is wrong with it.
// With anything wrong the list is nil.
func list[T comparable](t *table, key, want string, item func(*node) (T, error)) []T {
	n := t.need(key)
	if n == nil {
		return nil
	}
	if n.array == nil {
		t.wrong(key, n, "an array of "+want)
		return nil
	}
	if len(n.array) == 0 {
		t.bad.add(n.line, "%q in %s is empty; want %s", key, t.name, want)
		return nil
	}
	before := len(*t.bad)
	var values []T
	for _, n := range n.array {
		value, err := item(n)
		switch {
		case err != nil:
			t.bad.add(n.line, "%q in %s: %v", key, t.name, err)
		case slices.Contains(values, value):
			t.bad.add(n.line, "%q in %s has %v twice", key, t.name, value)
		default:
			values = append(values, value)
		}
	}
	if len(*t.bad) > before {
		return nil
	}
	return values
}

func textItem(n *node) (string, error) {
	text, ok := n.value.(string)
	if !ok {
		return "", fmt.Errorf("an item is %s; want a string", n.kind())
	}
	return text, nil
}

func integerItem(n *node) (int, error) {
	value, ok := n.value.(int64)
	if !ok {
		return 0, fmt.Errorf("an item is %s; want an integer", n.kind())
	}
	return int(value), nil
}

// inner reads a table inside this one, nil if it is absent or wrong; name is what its problems call it.
func (t *table) inner(key, name string, ask ask) *table {
	n := ask(t, key)
	if n == nil {
		return nil
	}
	if n.table == nil {
		t.wrong(key, n, "a table")
		return nil
	}
	return &table{node: n, name: name, bad: t.bad}
}

// tables reads an array of tables, nil if it is absent or wrong.
func (t *table) tables(key string, ask ask) []*table {
	n := ask(t, key)
	if n == nil {
		return nil
	}
	name := "[[" + key + "]]"
	if outer, ok := strings.CutPrefix(t.name, "[["); ok {
		name = "[[" + strings.TrimSuffix(outer, "]]") + "." + key + "]]"
	}
	if n.array == nil {
		t.wrong(key, n, "an array of tables, each under "+name)
		return nil
	}
	if len(n.array) == 0 {
		t.bad.add(n.line, "%q in %s is empty", key, t.name)
	}
	var all []*table
	for _, n := range n.array {
		if n.table == nil {
			t.wrong(key, n, "a table")
			continue
		}
		all = append(all, &table{node: n, name: name, bad: t.bad})
	}
	return all
}
