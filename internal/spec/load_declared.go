package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"attune/internal/rule"
)

// The keys of a file by the problem that has them. A file of either has the name.
var (
	declaredKeys  = []string{"arg", "launch", "reference", "source", "entry", "flags", "archs", "work", "peer", "axes"}
	attentionKeys = []string{"about", "stage", "selection", "run", "tolerance", "knob", "constraint", "retired", "shapes"}
)

// chooseProblem reads which problem the kernel computes. A file that does not say so declares its
// problem if it has a part that only such files have, or a misspelt one.
func (l *loader) chooseProblem(t *table, text []byte) {
	l.Problem = t.optionalText("problem")
	if known := []string{Attention, DeclaredProblem}; l.Problem != "" && !slices.Contains(known, l.Problem) {
		l.problems.add(t.at("problem"), "unknown problem %q%s", l.Problem, hint(l.Problem, known))
		l.Problem = ""
	}
	if l.Problem == "" {
		l.Problem = l.guessProblem(t)
	}
	if l.Problem == DeclaredProblem {
		sum := sha256.Sum256(text)
		l.Declared = &Declaration{SHA256: hex.EncodeToString(sum[:])}
	}
}

// guessProblem decides by the keys of a file. Without any of them the file is reported as one of a
// declared kernel, which is what most files are.
func (l *loader) guessProblem(t *table) string {
	all := slices.Concat(declaredKeys, attentionKeys, []string{"name", "problem", "allow", "random"})
	guess := ""
	for key, n := range t.table {
		switch near := Nearest(key, all); {
		case slices.Contains(declaredKeys, near), near == "shapes" && len(n.table) > 0:
			return DeclaredProblem
		case slices.Contains(attentionKeys, near):
			guess = Attention
		}
	}
	if guess == "" {
		l.problems.add(t.line, "the file declares no kernel; it needs a name, [[arg]], [launch] and [reference], as docs/kernel-toml.md explains")
		return DeclaredProblem
	}
	return guess
}

// declaration reads what only a declared kernel has, except for its shapes.
func (l *loader) declaration(t *table) {
	d := l.Declared
	d.Source = ""
	if l.Name != "" {
		d.Source = l.Name + ".cu"
	}
	d.Source = l.path(t, "source", d.Source)
	d.Entry = strings.ReplaceAll(l.Name, "-", "_")
	if t.get("entry") != nil {
		d.Entry = t.text("entry")
		l.checkForm(t, "entry", d.Entry, identifierForm)
	}
	d.Flags = l.flags(t)
	l.args(t.tables("arg", required))
	if t := t.inner("launch", "[launch]", required); t != nil {
		d.Grid, d.Block, d.Cluster = l.extents(t, "grid", required), l.extents(t, "block", required), l.extents(t, "cluster", optional)
		d.Shared = l.optionalExpr(t, "shared")
		d.Cooperative = t.optionalBool("cooperative")
		t.close()
	}
	if t := t.inner("reference", "[reference]", required); t != nil {
		l.reference(t)
	}
	if t := t.inner("tolerance", "[tolerance]", optional); t != nil {
		l.outputTolerances(t)
	}
	if t := t.inner("work", "[work]", optional); t != nil {
		d.Bytes, d.FLOPs = l.optionalExpr(t, "bytes"), l.optionalExpr(t, "flops")
		t.close()
	}
	for _, t := range t.tables("peer", optional) {
		l.peer(t)
	}
	l.Archs = l.archs(t, l.defaultArchs())
	l.listsArchs = len(l.Archs) > 0 && t.table["archs"] != nil
}

// defaultArchs are the architectures of a kernel that lists none. Tensor maps and clusters need
// Hopper.
func (l *loader) defaultArchs() []string {
	d := l.Declared
	if d.Cluster[0] != nil || slices.ContainsFunc(d.Args, func(a Arg) bool { return a.Role == Map }) {
		return []string{"sm_90a"}
	}
	return []string{"sm_80", "sm_89", "sm_90a"}
}

// flags reads the flags of the compiler. Unlike the items of other lists they may repeat.
func (l *loader) flags(t *table) []string {
	n := t.get("flags")
	if n == nil {
		return nil
	}
	if n.array == nil {
		t.wrongType("flags", n, "an array of strings")
		return nil
	}
	l.Declared.FlagsAt = fmt.Sprintf("%s:%d", File, n.line)
	var flags []string
	for _, n := range n.array {
		flag, err := textItem(n)
		words := strings.Fields(flag)
		switch {
		case err != nil:
		case len(words) == 0:
			err = fmt.Errorf("a flag is empty")
		case slices.ContainsFunc(words[1:], func(word string) bool { return strings.HasPrefix(word, "-") }),
			len(words) == 2 && slices.Contains([]string{"-I", "-D", "-U", "-Xptxas", "-maxrregcount"}, words[0]):
			err = fmt.Errorf("%q is more than one word of a command line; split it: \"%s\"", flag, strings.Join(words, `", "`))
		}
		if err != nil {
			l.problems.add(n.line, "%q in %s: %v", "flags", t.name, err)
		}
		flags = append(flags, flag)
	}
	return flags
}

// path reads the path of a file below the folder of the kernel. Several kernels may share the Python
// reference of a folder above.
func (l *loader) path(t *table, key, absent string) string {
	if t.get(key) == nil {
		return absent
	}
	text := t.text(key)
	if text == "" {
		return absent
	}
	clean := path.Clean(text)
	if key == "python" && isShared(clean) {
		return clean
	}
	if !fs.ValidPath(clean) || clean == "." && key != "files" {
		l.problems.add(t.at(key), "%q in %s is %q; want a path below the directory of %s", key, t.name, text, File)
		return ""
	}
	return clean
}

// isShared reports whether a clean path leads out of the folder of the kernel, to a file that several
// kernels share.
func isShared(clean string) bool {
	rest, outside := strings.CutPrefix(clean, "../")
	for outside && strings.HasPrefix(rest, "../") {
		rest = rest[len("../"):]
	}
	return outside && rest != ".." && fs.ValidPath(rest)
}

// checkFile reports a file or a folder that does not exist. An empty path has been reported. Shared
// files are not in the folder that the file is read from; the reference reports them when it starts.
func (l *loader) checkFile(t *table, key, name string, folder bool) {
	if name == "" || !fs.ValidPath(name) {
		return
	}
	what, info := "file", fs.FileInfo(nil)
	if folder {
		what = "folder"
	}
	info, err := fs.Stat(l.files, name)
	switch {
	case err != nil && t.table[key] == nil:
		l.problems.add(t.line, "%s has no %q, and there is no %s %s beside %s", t.name, key, what, name, File)
	case err != nil:
		l.problems.add(t.at(key), "%q in %s: there is no %s %s beside %s%s", key, t.name, what, name, File, l.nearestFile(name))
	case info.IsDir() != folder:
		l.problems.add(t.at(key), "%q in %s: %s is no %s", key, t.name, name, what)
	}
}

// nearestFile ends the message about a missing file with one of its folder that has a similar name.
func (l *loader) nearestFile(missing string) string {
	entries, _ := fs.ReadDir(l.files, path.Dir(missing)) // without the folder there is no such file
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if near := Nearest(path.Base(missing), names); near != "" {
		return fmt.Sprintf("; did you mean %q?", path.Join(path.Dir(missing), near))
	}
	return ""
}

// reference reads how the right outputs are computed.
func (l *loader) reference(t *table) {
	r := &l.Declared.Reference
	r.Line = t.line
	kinds := []string{"python", "source", "files"}
	var given []string
	for _, kind := range kinds {
		if t.get(kind) != nil {
			given = append(given, kind)
		}
	}
	if len(given) != 1 {
		has := "none of them"
		if len(given) > 1 {
			has = strings.Join(given, " and ")
		}
		l.problems.add(t.line, "%s needs exactly one of %s; it has %s", t.name, strings.Join(kinds, ", "), has)
	}
	for _, kind := range given {
		r.Kind, r.Path = kind, l.path(t, kind, "")
		l.checkFile(t, kind, r.Path, kind == "files")
	}
	if slices.Contains(given, "source") {
		r.Entry = l.Declared.Entry
		if t.get("entry") != nil {
			r.Entry = t.text("entry")
			l.checkForm(t, "entry", r.Entry, identifierForm)
		}
		r.Grid, r.Block = l.extents(t, "grid", optional), l.extents(t, "block", optional)
		r.Shared = l.optionalExpr(t, "shared")
	} else {
		for _, key := range []string{"entry", "grid", "block", "shared"} {
			if n := t.get(key); n != nil {
				l.problems.add(n.line, "%q in %s is only for a %q; remove it", key, t.name, "source")
			}
		}
	}
	t.close()
}

// outputTolerances reads the limits of each output.
func (l *loader) outputTolerances(t *table) {
	l.Declared.Tolerance = map[string]OutputTolerance{}
	var outputs []string
	for _, a := range l.Declared.Args {
		if a.Role == Out || a.Role == InOut {
			outputs = append(outputs, a.Name)
		}
	}
	if len(outputs) == 0 { // reported already
		return
	}
	for _, name := range t.keys {
		i := slices.IndexFunc(l.Declared.Args, func(a Arg) bool { return a.Name == name })
		if !slices.Contains(outputs, name) {
			text := fmt.Sprintf("unknown output %q in %s%s", name, t.name, hint(name, outputs))
			if i >= 0 {
				text = fmt.Sprintf("%q in %s is no output; there are %s", name, t.name, strings.Join(outputs, ", "))
			}
			l.problems.add(t.at(name), "%s", text)
			t.get(name)
			continue
		}
		inner := t.inner(name, fmt.Sprintf("%s of [tolerance]", name), required)
		if inner == nil {
			continue
		}
		l.Declared.Tolerance[name] = l.outputTolerance(inner, l.Declared.Args[i])
	}
	t.close()
}

// outputTolerance reads the limits of one output. Without abs and rel they are those of one
// rounding to the type of the output, as without a tolerance.
func (l *loader) outputTolerance(t *table, a Arg) OutputTolerance {
	limit := func(key string, most float64, want string) float64 {
		if t.get(key) == nil {
			return 0
		}
		return t.number(key, func(x float64) bool { return x >= 0 && x <= most }, want)
	}
	o := OutputTolerance{
		Abs: limit("abs", math.MaxFloat64, "of at least 0"), Rel: limit("rel", math.MaxFloat64, "of at least 0"),
		BadFraction: limit("bad_fraction", 1, "from 0 to 1"), Given: true,
	}
	if t.table["abs"] == nil && t.table["rel"] == nil {
		o.Abs, o.Rel = a.Type.Rounding()
		o.OneRounding = true
	}
	t.close()
	return o
}

// peer reads a Python function that is timed beside the kernel.
func (l *loader) peer(t *table) {
	var p PeerRule
	text := t.text("python")
	if file, function, ok := strings.Cut(text, ":"); ok && identifierForm.pattern.MatchString(function) && (fs.ValidPath(path.Clean(file)) || isShared(path.Clean(file))) {
		p.File, p.Function = path.Clean(file), function
		l.checkFile(t, "python", p.File, false)
	} else if text != "" {
		l.problems.add(t.at("python"), "%q in %s is %q; want a file and a function of it, such as peers.py:torch_sum", "python", t.name, text)
	}
	p.Name = p.Function
	if t.get("name") != nil {
		p.Name = t.text("name")
		l.checkForm(t, "name", p.Name, nameForm)
	}
	l.checkUnique(t, p.Name, slices.ContainsFunc(l.Declared.Peers, func(o PeerRule) bool { return o.Name == p.Name }))
	t.close()
	l.Declared.Peers = append(l.Declared.Peers, p)
}

// checkAxisName reports a name that an expression cannot use, or that has another meaning there.
func (l *loader) checkAxisName(t *table, name string) {
	text := ""
	switch {
	case !axisForm.pattern.MatchString(name):
		text = fmt.Sprintf("is no name of an axis; want %s", axisForm.want)
	case slices.Contains(l.knobNames(), name):
		text = "has the name of a knob; choose another name"
	case slices.Contains(rule.Numeric.Functions(), name):
		text = "has the name of a function; choose another name"
	case slices.Contains(rule.Numeric.Constants(), name):
		text = "has the name of a constant; choose another name"
	case !rule.IsWord(name):
		text = "has the name of a Starlark keyword; choose another name"
	}
	if text != "" {
		l.problems.add(t.at(name), "axis %q in %s %s", name, t.name, text)
	}
}
