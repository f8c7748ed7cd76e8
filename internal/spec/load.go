package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"attune/internal/regular"
)

// form is the required form of a name: a pattern, and its description for messages.
type form struct {
	pattern *regexp.Regexp
	want    string
}

var (
	knobForm       = form{regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`), "an upper-case letter, then upper-case letters, digits or _"}
	nameForm       = form{regexp.MustCompile(`^[a-z][a-z0-9_-]*$`), "a lower-case letter, then lower-case letters, digits, _ or -"}
	wordForm       = form{regexp.MustCompile(`^[a-z][a-z0-9_]*$`), "a lower-case letter, then lower-case letters, digits or _"}
	axisForm       = form{regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`), "a letter, then letters, digits or _"}
	shapeForm      = form{regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`), "letters, digits, _ and -"}
	identifierForm = form{regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`), "a letter or _, then letters, digits or _"}

	archForm = form{regexp.MustCompile(`^sm_[1-9][0-9]{1,2}a?$`), "one such as sm_89 or sm_90a"}
)

// maxFile bounds the size of kernel.toml in bytes, and with it the time and memory to read it. It
// is far above the size of a real one.
const maxFile = 256 << 10

// Load reads kernel.toml at the root of a file system. The error reports everything that is wrong
// with it, one line each.
func Load(fsys fs.FS) (*Kernel, error) {
	file, err := fsys.Open(File)
	if err != nil {
		return nil, missing(fsys, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxFile {
		return nil, problem{1, fmt.Sprintf("the file has %d bytes; a spec has at most %d", info.Size(), maxFile)}
	}
	text, err := regular.ReadAll(file, File, maxFile)
	if err != nil {
		return nil, missing(fsys, err)
	}
	root, err := readTOML(string(text))
	if err != nil {
		return nil, err
	}
	l := loader{Kernel: new(Kernel), files: fsys}
	t := &table{node: root, name: "the file", problems: &l.problems}
	l.chooseProblem(t, text)
	l.file(t)
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return l.Kernel, nil
}

// missing is the error of a folder without kernel.toml, or of a folder that does not exist.
func missing(fsys fs.FS, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the spec of a kernel: %w", err)
	}
	if _, folder := fs.Stat(fsys, "."); folder != nil {
		return &notFound{"the folder does not exist", err}
	}
	return &notFound{fmt.Sprintf("the folder has no %s", File), err}
}

// notFound is a message in place of that of the file system.
type notFound struct {
	text string
	error
}

func (e *notFound) Error() string { return e.text }
func (e *notFound) Unwrap() error { return e.error }

// loader fills a kernel, table by table. It keeps what it can read of a part with errors, so that
// references to that part are not reported as well.
type loader struct {
	*Kernel
	problems problems
	unusable bool // a knob or a constraint has errors, so that no variant can be checked

	// Of a declared kernel.
	files      fs.FS             // of its folder
	listsArchs bool              // it lists its architectures, which a stage may narrow
	firstWith  map[string]string // by axis: the first shape that has it
	unknown    []string          // axes of expressions that have been reported
}

func (l *loader) file(t *table) {
	l.Name = t.text("name")
	l.checkForm(t, "name", l.Name, nameForm)
	l.About = l.prose(t, "about")
	l.Allow = allowList(t)

	knobs, constraints := t.tables("knob", optional), t.tables("constraint", optional)
	retired := t.tables("retired", optional)
	for _, t := range knobs {
		l.knob(t)
	}
	for _, t := range retired {
		l.retired(t)
	}
	for _, t := range constraints {
		l.constraint(t)
	}
	if l.Declared != nil {
		l.namedShapes(t)
		l.declaration(t)
	} else {
		for _, t := range t.tables("shapes", required) {
			l.group(t)
		}
	}
	valid := l.stages(t)
	l.checkAxes(knobs)
	l.checkSources(knobs, constraints)
	l.checkFormerNames(knobs)
	l.checkRetired(retired)
	for _, t := range t.tables("selection", optional) {
		l.selection(t, valid)
	}
	if l.Declared != nil {
		l.declaredRun(t)
		l.tryOut(valid)
	} else {
		l.attention(t)
	}
	l.random(t)
	t.close()
}

// attention reads the parts that only attention has.
func (l *loader) attention(t *table) {
	if t := t.inner("run", "[run]", required); t != nil {
		l.run(t)
	}
	if t := t.inner("tolerance", "[tolerance]", required); t != nil {
		l.tolerance(t)
	}
}

// required is the lookup of a key that attention requires and a declared kernel may omit.
func (l *loader) required(t *table, key string) *node {
	if l.Declared != nil {
		return t.get(key)
	}
	return t.need(key)
}

// prose reads a text for people, which a declared kernel may omit.
func (l *loader) prose(t *table, key string) string {
	if l.required(t, key) == nil {
		return ""
	}
	return t.prose(key)
}

// ok reports whether a part of the file was read without a problem.
func (l *loader) ok(read func()) bool {
	before := len(l.problems)
	read()
	return len(l.problems) == before
}

// checkForm reports a name of the wrong form. An empty one has been reported already.
func (l *loader) checkForm(t *table, key, text string, want form) {
	if text != "" && !want.pattern.MatchString(text) {
		l.problems.add(t.at(key), "%q in %s is %q; want %s", key, t.name, text, want.want)
	}
}

// checkUnique reports a name that is already in use.
func (l *loader) checkUnique(t *table, name string, used bool) {
	if name != "" && used {
		l.problems.add(t.at("name"), "%s %q is declared twice", t.name, name)
	}
}

func (l *loader) group(t *table) {
	g := Group{Name: t.text("name")}
	l.checkForm(t, "name", g.Name, nameForm)
	l.checkUnique(t, g.Name, slices.ContainsFunc(l.Groups, func(o Group) bool { return o.Name == g.Name }))
	g.Shapes = list(t, "problems", "shapes", func(n *node) (Shape, error) {
		text, err := textItem(n)
		if err != nil {
			return nil, err
		}
		return l.ParseShape(text)
	})
	t.close()
	l.Groups = append(l.Groups, g)
}

func (l *loader) run(t *table) {
	var run []Shape
	l.Run.Shapes = list(t, "shapes", "shapes", func(n *node) (string, error) {
		text, shapes, err := l.shapesItem(n)
		run = append(run, shapes...)
		return text, err
	})
	l.benchmark(t, run)
	l.Run.Seeds = list(t, "seeds", "integers", seedItem)
	l.Run.SimShapes, l.Run.SimSeeds = l.Run.Shapes, l.Run.Seeds
	if t.get("sim_shapes") != nil {
		l.Run.SimShapes = list(t, "sim_shapes", "shapes", func(n *node) (string, error) {
			text, _, err := l.shapesItem(n)
			return text, err
		})
	}
	if t.get("sim_seeds") != nil {
		l.Run.SimSeeds = list(t, "sim_seeds", "integers", seedItem)
	}
	l.quick(t)
	t.close()
}

// quick reads the shapes of a quick run, or derives them.
func (l *loader) quick(t *table) {
	if t.get("quick") == nil {
		l.Run.Quick, l.Run.SimQuick = l.firstShapes(l.Run.Shapes), l.firstShapes(l.Run.SimShapes)
		return
	}
	l.Run.Quick = list(t, "quick", "shapes", func(n *node) (string, error) {
		text, _, err := l.shapesItem(n)
		return text, err
	})
	l.Run.SimQuick = l.Run.Quick
}

// firstShapes are the first shape of each item, without repetitions.
func (l *loader) firstShapes(items []string) []string {
	var first []string
	for _, item := range items {
		shapes, err := l.shapes(item)
		if err != nil || len(shapes) == 0 { // reported already
			continue
		}
		if text := shapes[0].String(); !slices.Contains(first, text) {
			first = append(first, text)
		}
	}
	return first
}

// benchmark reads the shapes of the performance gate, which must be among the shapes of a run.
func (l *loader) benchmark(t *table, run []Shape) {
	if old := t.table["judged"]; old != nil {
		t.read = append(t.read, "judged", "benchmark")
		l.problems.add(old.line, "%q in %s is now called %q; rename the key", "judged", t.name, "benchmark")
		return
	}
	l.Run.Benchmark = list(t, "benchmark", "shapes", func(n *node) (string, error) {
		text, shapes, err := l.shapesItem(n)
		for _, shape := range shapes {
			if err == nil && l.Run.Shapes != nil && !slices.Contains(run, shape) {
				err = fmt.Errorf("shape %s is not among the \"shapes\" of a run", shape)
			}
		}
		return text, err
	})
}

func seedItem(n *node) (uint64, error) {
	seed, err := integerItem(n)
	if err == nil && seed < 0 {
		err = fmt.Errorf("seed %d is below 0", seed)
	}
	return uint64(seed), err
}

// shapesItem reads a group name or a shape. It returns the text and the shapes it stands for.
func (l *loader) shapesItem(n *node) (string, []Shape, error) {
	text, err := textItem(n)
	if err != nil {
		return "", nil, err
	}
	shapes, err := l.shapes(text)
	return text, shapes, err
}

func (l *loader) tolerance(t *table) {
	l.Tolerance = Tolerance{
		MaxErr:      t.positive("max_err"),
		MeanErr:     t.positive("mean_err"),
		Atol:        t.positive("atol"),
		Rtol:        t.positive("rtol"),
		BadFraction: t.number("bad_fraction", func(x float64) bool { return x >= 0 && x <= 1 }, "from 0 to 1"),
	}
	t.close()
}
