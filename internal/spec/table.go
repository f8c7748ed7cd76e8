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

// problem is one error in kernel.toml.
type problem struct {
	line int
	text string
}

// Error returns a single line, even if a name in the file contains a line break.
func (p problem) Error() string {
	return fmt.Sprintf("%s:%d: %s", File, p.line, strings.ReplaceAll(p.text, "\n", `\n`))
}

// problems collects errors, so that one reading of the file reports all of them.
type problems []problem

func (p *problems) add(line int, format string, args ...any) {
	*p = append(*p, problem{line, fmt.Sprintf(format, args...)})
}

// err joins the problems ordered by line; nil if there are none.
func (p problems) err() error {
	slices.SortStableFunc(p, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var list []error
	for _, one := range p {
		list = append(list, one)
	}
	return errors.Join(list...)
}

// table reads one table of the file. Its methods read a key, report what is wrong with it and then
// return a zero value. close reports the keys that were never read.
type table struct {
	*node
	name     string // in messages, such as [[knob]]
	problems *problems
	read     []string // keys
}

// get returns the value of a key, nil if it is absent.
func (t *table) get(key string) *node {
	if !slices.Contains(t.read, key) {
		t.read = append(t.read, key)
	}
	return t.table[key]
}

// need returns the value of a required key and reports its absence.
func (t *table) need(key string) *node {
	n := t.get(key)
	if n == nil {
		t.problems.add(t.line, "%s has no %q", t.name, key)
	}
	return n
}

// lookup is get for an optional key, need for a required one.
type lookup func(t *table, key string) *node

var (
	optional lookup = (*table).get
	required lookup = (*table).need
)

// wrongType reports that the value of a key has another type than it should.
func (t *table) wrongType(key string, n *node, want string) {
	t.problems.add(n.line, "%q in %s is %s; want %s", key, t.name, n.kind(), want)
}

// at returns the line of a key, or of the table if the key is absent.
func (t *table) at(key string) int {
	if n := t.table[key]; n != nil {
		return n.line
	}
	return t.line
}

// close reports unknown keys.
func (t *table) close() {
	for _, key := range slices.Sorted(maps.Keys(t.table)) {
		if !slices.Contains(t.read, key) {
			t.problems.add(t.at(key), "unknown key %q in %s%s", key, t.name, hint(key, t.read))
		}
	}
}

// text reads a required string that is not blank.
func (t *table) text(key string) string {
	n := t.need(key)
	if n == nil {
		return ""
	}
	text, ok := n.value.(string)
	if !ok {
		t.wrongType(key, n, "a string")
		return ""
	}
	if strings.TrimSpace(text) == "" {
		t.problems.add(n.line, "%q in %s is empty", key, t.name)
		return ""
	}
	return text
}

// optionalText reads a string; it is empty if the key is absent.
func (t *table) optionalText(key string) string {
	if t.get(key) == nil {
		return ""
	}
	return t.text(key)
}

// optionalBool reads a boolean; it is false if the key is absent.
func (t *table) optionalBool(key string) bool {
	n := t.get(key)
	if n == nil {
		return false
	}
	value, ok := n.value.(bool)
	if !ok {
		t.wrongType(key, n, "true or false")
	}
	return value
}

// prose reads a string for people. Line breaks in the file become spaces.
func (t *table) prose(key string) string {
	return strings.Join(strings.Fields(t.text(key)), " ")
}

// integer reads an integer from low to high.
func (t *table) integer(key string, low, high int) int {
	n := t.need(key)
	if n == nil {
		return 0
	}
	value, ok := n.value.(int64)
	if !ok {
		t.wrongType(key, n, "an integer")
		return 0
	}
	if value < int64(low) || value > int64(high) {
		want := fmt.Sprintf("from %d to %d", low, high)
		if high == math.MaxInt {
			want = fmt.Sprintf("of at least %d", low)
		}
		t.problems.add(n.line, "%q in %s is %d; want an integer %s", key, t.name, value, want)
	}
	return int(value)
}

// number reads a number for which within is true; want describes that range.
func (t *table) number(key string, within func(float64) bool, want string) float64 {
	n := t.need(key)
	if n == nil {
		return 0
	}
	value, ok := n.value.(float64)
	if integer, isInt := n.value.(int64); isInt {
		value, ok = float64(integer), true
	}
	if !ok {
		t.wrongType(key, n, "a number")
		return 0
	}
	if !within(value) {
		t.problems.add(n.line, "%q in %s is %g; want a number %s", key, t.name, value, want)
	}
	return value
}

// positive reads a finite number above zero.
func (t *table) positive(key string) float64 {
	return t.number(key, func(x float64) bool { return x > 0 && x <= math.MaxFloat64 }, "above 0")
}

// list reads a required array of distinct items, at least one. The error of item describes what is
// wrong with it. If anything is wrong, the list is nil.
func list[T comparable](t *table, key, want string, item func(*node) (T, error)) []T {
	n := t.need(key)
	if n == nil {
		return nil
	}
	if n.array == nil {
		t.wrongType(key, n, "an array of "+want)
		return nil
	}
	if len(n.array) == 0 {
		t.problems.add(n.line, "%q in %s is empty; want %s", key, t.name, want)
		return nil
	}
	before := len(*t.problems)
	var values []T
	for _, n := range n.array {
		value, err := item(n)
		switch {
		case err != nil:
			t.problems.add(n.line, "%q in %s: %v", key, t.name, err)
		case slices.Contains(values, value):
			t.problems.add(n.line, "%q in %s has %v twice", key, t.name, value)
		default:
			values = append(values, value)
		}
	}
	if len(*t.problems) > before {
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

// inner reads a table inside this one; nil if it is absent or no table. Messages call it name.
func (t *table) inner(key, name string, look lookup) *table {
	n := look(t, key)
	if n == nil {
		return nil
	}
	if n.table == nil {
		t.wrongType(key, n, "a table")
		return nil
	}
	return &table{node: n, name: name, problems: t.problems}
}

// tables reads an array of tables; nil if it is absent or no such array.
func (t *table) tables(key string, look lookup) []*table {
	n := look(t, key)
	if n == nil {
		return nil
	}
	name := "[[" + key + "]]"
	if outer, ok := strings.CutPrefix(t.name, "[["); ok {
		name = "[[" + strings.TrimSuffix(outer, "]]") + "." + key + "]]"
	}
	if n.array == nil {
		t.wrongType(key, n, "an array of tables, each under "+name)
		return nil
	}
	if len(n.array) == 0 {
		t.problems.add(n.line, "%q in %s is empty", key, t.name)
	}
	var all []*table
	for _, n := range n.array {
		if n.table == nil {
			t.wrongType(key, n, "a table")
			continue
		}
		all = append(all, &table{node: n, name: name, problems: t.problems})
	}
	return all
}
