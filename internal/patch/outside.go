package patch

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// blank is white space and comments between the tokens of a directive.
const blank = `(?:[ \t\v\f\r]|/\*(?s:.*?)\*/)*`

var (
	splice    = regexp.MustCompile(`\\[ \t\v\f\r]*\n`)
	trigraphs = strings.NewReplacer("??=", "#", "??/", `\`)
	// directive is found wherever it stands, in comments and strings too: what hides it from this
	// search would have to hide it from the compiler as well.
	directive = regexp.MustCompile(`(?:#|%:)` + blank + `(include_next|include|import|embed)\b([^\n]*)`)
	question  = regexp.MustCompile(`__has_(?:include_next|include|embed)\b([^\n]*)`)
	operand   = regexp.MustCompile(`^` + blank + `(?:"([^"\n]+)"|<([^>\n]+)>)`)
	argument  = regexp.MustCompile(`^` + blank + `\(` + blank + `(?:"([^"\n]+)"|<([^>\n]+)>)`)
)

// Outside returns an error for a directive of a source that makes the compiler read a file outside
// of the kernel's folder and its own headers, or that names the file by a macro. Directives that the
// source had before are accepted: the build judges them.
func Outside(name string, before, after []byte) error {
	known := suspects(name, before)
	for _, s := range suspects(name, after) {
		if !slices.Contains(known, s) {
			return fmt.Errorf("%s: %s; a patch includes files of the kernel's folder and headers of the compiler only", name, s)
		}
	}
	return nil
}

// suspects lists the directives that name a file outside, or none that can be checked.
func suspects(name string, text []byte) []string {
	source := splice.ReplaceAllString(trigraphs.Replace(string(text)), "")
	var all []string
	for _, m := range directive.FindAllStringSubmatch(source, -1) {
		if m[1] == "embed" || !inside(name, operand.FindStringSubmatch(m[2])) {
			all = append(all, "#"+m[1]+" "+show(strings.TrimSpace(m[2]))+" is refused")
		}
	}
	for _, m := range question.FindAllStringSubmatch(source, -1) {
		if !inside(name, argument.FindStringSubmatch(m[1])) {
			all = append(all, "__has_include "+show(strings.TrimSpace(m[1]))+" is refused")
		}
	}
	return all
}

// inside reports whether a directive's operand, in quotes or in angle brackets, is a path that stays
// in the kernel's folder or in those of the compiler.
func inside(name string, operand []string) bool {
	if operand == nil {
		return false
	}
	quoted, angled := operand[1], operand[2]
	if quoted != "" {
		return !path.IsAbs(quoted) && fs.ValidPath(path.Join(path.Dir(name), quoted))
	}
	return !path.IsAbs(angled) && !slices.Contains(strings.Split(angled, "/"), "..")
}
