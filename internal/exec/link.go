package exec

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

// Separate compilation (nvcc -rdc=true) leaves PTX for each translation unit, which the driver links
// when it loads the module. Here the texts become one: the first keeps its header, later weak
// definitions of a name are dropped, and the numbers of source files are made different.

// linkPTX joins the PTX of translation units.
func linkPTX(units [][]byte) []byte {
	if len(units) == 1 {
		return units[0]
	}
	var joined bytes.Buffer
	defined := map[string]bool{}
	files := 0
	for i, unit := range units {
		text, most := renumberFiles(unit, files, i)
		files = most
		for _, s := range statements(text) {
			name, weak := definition(s)
			header := isHeader(s)
			if i > 0 && header || name != "" && weak && defined[name] {
				continue
			}
			if name != "" {
				defined[name] = true
			}
			joined.Write(s)
			joined.WriteByte('\n')
		}
	}
	return joined.Bytes()
}

var (
	filePattern    = regexp.MustCompile(`(?m)^(\s*\.file\s+)(\d+)`)
	locPattern     = regexp.MustCompile(`(?m)^(\s*\.loc\s+)(\d+)`)
	inlinedPattern = regexp.MustCompile(`(inlined_at\s+)(\d+)`)
	stringPattern  = regexp.MustCompile(`\$L__info_string`)
)

// renumberFiles adds a number to those of the source files of a unit, and gives its labels of debugging
// texts a name of their own. It returns the greatest number.
func renumberFiles(text []byte, by, unit int) ([]byte, int) {
	most := by
	add := func(pattern *regexp.Regexp) {
		text = pattern.ReplaceAllFunc(text, func(match []byte) []byte {
			parts := pattern.FindSubmatch(match)
			n, _ := strconv.Atoi(string(parts[2]))
			most = max(most, n+by)
			return strconv.AppendInt(bytes.Clone(parts[1]), int64(n+by), 10)
		})
	}
	add(filePattern)
	add(locPattern)
	add(inlinedPattern)
	return stringPattern.ReplaceAll(text, fmt.Appendf(nil, "$$L__unit%d_string", unit)), most
}

// statements splits a text into what is at its top level: directives, declarations and definitions.
func statements(text []byte) [][]byte {
	var list [][]byte
	start, depth := 0, 0
	end := func(at int) {
		if s := bytes.TrimSpace(text[start:at]); len(s) > 0 {
			list = append(list, s)
		}
		start = at
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			next := lineEnd(text, i)
			if depth == 0 { // comments between statements are dropped
				end(i)
				start = next
			}
			i = next - 1
		case c == '"':
			if n := bytes.IndexByte(text[i+1:], '"'); n >= 0 {
				i += n + 1
			}
		case c == '{' || c == '(':
			depth++
		case c == ')':
			depth--
		case c == '}':
			if depth--; depth == 0 && !isInitialised(text[start:i]) {
				end(i + 1)
			}
		case c == ';' && depth == 0:
			end(i + 1)
		case c == '\n' && depth == 0 && isLine(bytes.TrimSpace(text[start:i])):
			end(i + 1)
		}
	}
	end(len(text))
	return list
}

func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(text)
}

// isInitialised reports whether braces end an initialiser, which a semicolon follows.
func isInitialised(s []byte) bool {
	head, _, _ := bytes.Cut(s, []byte("{"))
	return bytes.HasSuffix(bytes.TrimSpace(head), []byte("="))
}

var headers = [][]byte{[]byte(".version"), []byte(".target"), []byte(".address_size")}

// isLine reports whether a statement ends with its line.
func isLine(s []byte) bool { return isHeader(s) || bytes.HasPrefix(s, []byte(".file")) }

// isHeader reports whether a statement is a directive that a text has once.
func isHeader(s []byte) bool {
	for _, h := range headers {
		if bytes.HasPrefix(s, h) {
			return true
		}
	}
	return false
}

var namePattern = regexp.MustCompile(`^((?:\.(?:weak|visible|extern|common)\s+)?)\.(func|entry|global|const|shared)\b[^{=;]*`)

// definition returns the name that a statement defines or declares, and whether later ones with the
// name are dropped.
func definition(s []byte) (name string, droppable bool) {
	m := namePattern.FindSubmatch(s)
	if m == nil || bytes.HasPrefix(m[1], []byte(".extern")) {
		return "", false
	}
	head := m[0]
	isFunction := string(m[2]) == "func" || string(m[2]) == "entry"
	if isFunction {
		head = head[len(m[1])+1+len(m[2]):]
		if trimmed := bytes.TrimSpace(head); bytes.HasPrefix(trimmed, []byte("(")) { // the result
			_, head, _ = bytes.Cut(trimmed, []byte(")"))
		}
		head, _, _ = bytes.Cut(head, []byte("("))
		if !bytes.Contains(s, []byte("{")) {
			return "", false // a declaration
		}
	}
	fields := bytes.Fields(head)
	if len(fields) == 0 {
		return "", false
	}
	last, _, _ := bytes.Cut(fields[len(fields)-1], []byte("["))
	weak := bytes.HasPrefix(m[1], []byte(".weak")) || bytes.HasPrefix(m[1], []byte(".common"))
	return string(last), weak
}
