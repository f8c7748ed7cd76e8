package spec

import (
	"errors"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// node is a value of a TOML file with its line. The TOML library reports the line of a syntax
// error, but not the line of a value. So the values come from the library and the lines from a scan
// of the same text.
type node struct {
	line  int
	value any              // string, int64, float64, bool or time.Time; nil for a table or an array
	table map[string]*node // not nil for a table
	array []*node          // not nil for an array
	keys  []string         // of a table, in the order of the file
}

// readTOML parses a file. Its error is a problem with a line.
func readTOML(text string) (*node, error) {
	var values map[string]any
	meta, err := toml.Decode(text, &values)
	if err != nil {
		p := problem{line: 1, text: err.Error()}
		if at, ok := errors.AsType[toml.ParseError](err); ok {
			p.line = max(1, at.Position.Line)
			p.text = "not TOML: " + strings.TrimSuffix(at.Message, ".")
			if start := at.Position.Start; start < len(text) && text[start] == '\n' { // the line that ends here
				p.line = 1 + strings.Count(text[:start], "\n")
			}
			if strings.Contains(at.Message, "out of range for int64") {
				p.text += "; write a larger number as a string, in double quotes"
			}
		}
		return nil, p
	}
	root := scanLines(text)
	root.fill(values)
	for _, path := range meta.Keys() {
		root.order(path)
	}
	return root, nil
}

// order adds the keys of a path to their tables. Paths come in the order of the file. The tables of
// an array share their paths, so that their keys have no order.
func (n *node) order(path []string) {
	for _, key := range path {
		if n == nil || n.table == nil {
			return
		}
		if !slices.Contains(n.keys, key) {
			n.keys = append(n.keys, key)
		}
		n = n.table[key]
	}
}

// fill adds the values that the library parsed to a scanned node. A value that the scan missed gets
// its parent's line.
func (n *node) fill(value any) {
	switch value := value.(type) {
	case map[string]any:
		scanned := n.table
		n.table = make(map[string]*node, len(value))
		for key, v := range value {
			child := scanned[key]
			if child == nil {
				child = &node{line: n.line}
			}
			child.fill(v)
			n.table[key] = child
		}
	case []map[string]any:
		items := make([]any, len(value))
		for i := range value {
			items[i] = value[i]
		}
		n.fill(items)
	case []any:
		scanned := n.array
		n.array = make([]*node, len(value))
		for i, v := range value {
			n.array[i] = &node{line: n.line}
			if i < len(scanned) {
				n.array[i] = scanned[i]
			}
			n.array[i].fill(v)
		}
	default:
		n.value = value
	}
}

// kind returns the TOML type of a node, with an article.
func (n *node) kind() string {
	switch n.value.(type) {
	case nil:
		if n.table != nil {
			return "a table"
		}
		return "an array"
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	}
	return "a date or time"
}

// child follows a path of keys and creates missing tables. In an array of tables it enters the last
// one.
func (n *node) child(path []string, line int) *node {
	for _, key := range path {
		next := n.table[key]
		if next == nil {
			next = &node{line: line}
			n.table[key] = next
		}
		if len(next.array) > 0 {
			next = next.array[len(next.array)-1]
		}
		if next.table == nil {
			next.table = map[string]*node{}
		}
		n = next
	}
	return n
}

// append adds a table to the array of tables at a path and returns it.
func (n *node) append(path []string, line int) *node {
	last := len(path) - 1
	n = n.child(path[:last], line)
	list := n.table[path[last]]
	if list == nil {
		list = &node{line: line}
		n.table[path[last]] = list
	}
	item := &node{line: line, table: map[string]*node{}}
	list.array = append(list.array, item)
	return item
}

// scanner finds the lines of keys and values in text that the library accepts. On any other text it
// terminates with a meaningless tree.
type scanner struct {
	rest string
	line int
}

// scanLines returns the tables, arrays and lines of a TOML text, without the values.
func scanLines(text string) *node {
	// The library skips these byte order marks.
	for _, mark := range []string{"\xff\xfe", "\xfe\xff", "\xef\xbb\xbf"} {
		if strings.HasPrefix(text, mark) {
			text = text[len(mark):]
			break
		}
	}
	s := &scanner{rest: text, line: 1}
	root := &node{line: 1, table: map[string]*node{}}
	at := root
	for s.blank(); s.rest != ""; s.blank() {
		switch line := s.line; {
		case s.accept("[["):
			at = root.append(s.key(), line)
			s.accept("]]")
		case s.accept("["):
			at = root.child(s.key(), line)
			at.line = line
			s.accept("]")
		default:
			s.assignment(at)
		}
	}
	return root
}

// assignment scans "key = value" into a table.
func (s *scanner) assignment(table *node) {
	line := s.line
	path := s.key()
	s.accept("=")
	s.spaces()
	value := s.value()
	last := len(path) - 1
	table.child(path[:last], line).table[path[last]] = value
}

// value scans a value of any type. It consumes at least one byte unless the text is at its end.
func (s *scanner) value() *node {
	n := &node{line: s.line}
	switch {
	case s.rest == "":
	case s.rest[0] == '"' || s.rest[0] == '\'':
		s.quoted()
	case s.accept("["):
		for s.blank(); s.rest != "" && !s.accept("]"); s.blank() {
			n.array = append(n.array, s.value())
			s.blank()
			s.accept(",")
		}
	case s.accept("{"):
		n.table = map[string]*node{}
		for s.blank(); s.rest != "" && !s.accept("}"); s.blank() {
			s.assignment(n)
			s.blank()
			s.accept(",")
		}
	default:
		end := strings.IndexAny(s.rest, ",]}#\n")
		if end < 0 {
			end = len(s.rest)
		}
		s.skip(max(1, end))
	}
	return n
}

// key scans a dotted key and the spaces around its parts.
func (s *scanner) key() []string {
	var path []string
	for {
		s.spaces()
		if s.rest != "" && (s.rest[0] == '"' || s.rest[0] == '\'') {
			path = append(path, unquote(s.quoted()))
		} else {
			path = append(path, s.bare())
		}
		s.spaces()
		if !s.accept(".") {
			return path
		}
	}
}

// bare scans an unquoted part of a key.
func (s *scanner) bare() string {
	end := strings.IndexFunc(s.rest, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	})
	if end < 0 {
		end = len(s.rest)
	}
	return s.skip(end)
}

// quoted scans a string of any of the four forms and returns it with its quotes.
func (s *scanner) quoted() string {
	quote := s.rest[:1]
	escapes := quote == `"`
	if long := strings.Repeat(quote, 3); strings.HasPrefix(s.rest, long) {
		quote = long
	}
	end := len(quote)
	for end < len(s.rest) && !strings.HasPrefix(s.rest[end:], quote) {
		if escapes && s.rest[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end+len(quote), len(s.rest))
	// A multi-line string may end in quotes of its own, just before the three that close it.
	for len(quote) == 3 && end < len(s.rest) && s.rest[end] == quote[0] {
		end++
	}
	return s.skip(end)
}

// unquote decodes a quoted key with the library, which knows the escapes.
func unquote(key string) string {
	var as struct{ Key string }
	if _, err := toml.Decode("Key = "+key, &as); err != nil {
		return key
	}
	return as.Key
}

// blank skips white space and comments.
func (s *scanner) blank() {
	for {
		s.skip(len(s.rest) - len(strings.TrimLeft(s.rest, " \t\r\n")))
		if !strings.HasPrefix(s.rest, "#") {
			return
		}
		end := strings.IndexByte(s.rest, '\n')
		if end < 0 {
			end = len(s.rest)
		}
		s.skip(end)
	}
}

func (s *scanner) spaces() {
	s.rest = strings.TrimLeft(s.rest, " \t")
}

func (s *scanner) accept(text string) bool {
	rest, ok := strings.CutPrefix(s.rest, text)
	s.rest = rest
	return ok
}

// skip consumes n bytes and counts their lines.
func (s *scanner) skip(n int) string {
	skipped := s.rest[:n]
	s.line += strings.Count(skipped, "\n")
	s.rest = s.rest[n:]
	return skipped
}
