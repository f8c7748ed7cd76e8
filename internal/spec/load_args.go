package spec

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.starlark.net/syntax"

	"attune/internal/array"
	"attune/internal/rule"
	"attune/internal/tensormap"
)

// fills lists the fills. Those of ranges take two numbers.
var (
	fills  = []string{"normal", "uniform", "zeros", "ones", "iota", "integers", "offsets"}
	ranges = []string{"uniform", "integers", "offsets"}
)

// zeroLaunch is the value of "zero" of scratch that is cleared before every launch.
const zeroLaunch = "launch"

// typeNames are the names that CUDA and numpy have for the number formats.
var typeNames = map[string]array.DType{
	"double": array.F64, "float64": array.F64, "float": array.F32, "float32": array.F32, "fp32": array.F32,
	"half": array.F16, "__half": array.F16, "float16": array.F16, "bfloat16": array.BF16, "__nv_bfloat16": array.BF16,
	"char": array.I8, "int8": array.I8, "uint8": array.U8, "bool": array.U8,
	"int": array.I32, "int32": array.I32, "unsigned": array.U32, "uint32": array.U32,
	"int64": array.I64, "uint64": array.U64, "size": array.U64,
}

// args reads the arguments. A tensor map may name an argument below it.
func (l *loader) args(tables []*table) {
	d := l.Declared
	maps := map[int]*table{}
	for i, t := range tables {
		a := Arg{Name: t.text("name"), Line: t.line}
		l.checkForm(t, "name", a.Name, identifierForm)
		l.checkUnique(t, a.Name, slices.ContainsFunc(d.Args, func(o Arg) bool { return o.Name == a.Name }))
		if a.Name != "" {
			t.name = fmt.Sprintf("[[arg]] %q", a.Name)
		}
		a.Role = l.role(t)
		switch a.Role {
		case Scalar:
			l.scalar(t, &a)
		case Map:
			maps[i] = t
			l.forbid(t, "only a buffer can be a null pointer; remove the key", "when")
		default:
			l.buffer(t, &a)
		}
		d.Args = append(d.Args, a)
	}
	for i, t := range tables {
		if maps[i] != nil {
			l.tensorMap(t, &d.Args[i])
		}
		t.close()
	}
	output := func(a Arg) bool { return a.Role == Out || a.Role == InOut }
	if len(tables) > 0 && !slices.ContainsFunc(d.Args, output) {
		l.problems.add(tables[len(tables)-1].line, "no [[arg]] is an output; add out = true or inout = true to one")
	}
}

// role reads what the kernel does with an argument.
func (l *loader) role(t *table) Role {
	roles := []struct {
		key  string
		role Role
		has  bool
	}{
		{"out", Out, t.optionalBool("out")},
		{"inout", InOut, t.optionalBool("inout")},
		{"scratch", Scratch, t.optionalBool("scratch")},
		{"value", Scalar, t.get("value") != nil},
		{"tensormap", Map, t.get("tensormap") != nil},
	}
	first := ""
	role := In
	for _, r := range roles {
		switch {
		case !r.has:
		case first == "":
			first, role = r.key, r.role
		default:
			l.problems.add(t.at(r.key), "%s has both %q and %q; an argument has one role", t.name, first, r.key)
		}
	}
	return role
}

// forbid reports keys that an argument of a role does not have.
func (l *loader) forbid(t *table, why string, keys ...string) {
	for _, key := range keys {
		if n := t.get(key); n != nil {
			l.problems.add(n.line, "%q in %s: %s", key, t.name, why)
		}
	}
}

func (l *loader) scalar(t *table, a *Arg) {
	l.argType(t, a)
	a.Value = l.expr(t, "value", t.table["value"])
	l.forbid(t, "an argument with a \"value\" is a scalar; remove the key", "shape", "fill", "file", "when", "zero")
}

func (l *loader) buffer(t *table, a *Arg) {
	l.argType(t, a)
	if n := t.get("shape"); n == nil {
		l.problems.add(t.line, "%s has no %q; a buffer needs it, and a scalar needs a %q", t.name, "shape", "value")
	} else {
		a.Shape = l.exprs(t, "shape", n, maxRank)
	}
	if n := t.get("when"); n != nil {
		a.When = l.expr(t, "when", n)
	}
	if a.Role == Out {
		l.forbid(t, "an output has no initial contents; use inout = true for a buffer that is updated in place", "fill", "file", "zero")
		return
	}
	if a.Role == Scratch {
		l.forbid(t, "scratch is zero before the first launch; use inout = true for other contents", "fill", "file")
		a.Zero = word(t, "zero", "", []string{zeroLaunch}) != ""
		return
	}
	l.forbid(t, "only scratch is cleared; write scratch = true, or remove the key", "zero")
	a.Fill = Fill{Kind: "normal"}
	if !a.Type.Float() {
		a.Fill.Kind = "zeros"
	}
	if t.get("fill") != nil {
		a.Fill = l.fill(t, a.Type)
	}
	if t.get("file") == nil {
		return
	}
	if t.table["fill"] != nil {
		l.problems.add(t.at("file"), "%s has both %q and %q; choose one", t.name, "fill", "file")
	}
	a.Fill = Fill{}
	a.File = l.inputFile(t)
}

// inputFile reads the file of an input: x.npy, x.safetensors or x.safetensors#tensor. A path with {shape}
// or {seed} is looked up when the kernel runs.
func (l *loader) inputFile(t *table) string {
	text := t.text("file")
	if text == "" {
		return ""
	}
	name, tensor, named := strings.Cut(text, "#")
	name = path.Clean(name)
	extension := path.Ext(name)
	switch {
	case !fs.ValidPath(name):
		l.problems.add(t.at("file"), "%q in %s is %q; want a path below the directory of %s", "file", t.name, text, File)
	case extension != ".npy" && extension != ".safetensors":
		l.problems.add(t.at("file"), "%q in %s is %q; want a .npy or a .safetensors file", "file", t.name, text)
	case named && (extension == ".npy" || tensor == ""):
		l.problems.add(t.at("file"), "%q in %s is %q; want x.npy, x.safetensors or x.safetensors#tensor", "file", t.name, text)
	case !strings.ContainsAny(name, "{}"):
		l.checkFile(t, "file", name, false)
	}
	if named {
		name += "#" + tensor
	}
	return name
}

// argType reads the number format of an argument: a name, or an expression over knobs that chooses among
// names in quotes.
func (l *loader) argType(t *table, a *Arg) {
	text := strings.Join(strings.Fields(t.text("type")), " ")
	expr, err := rule.ParseSyntax(text)
	if text == "" || err != nil || !isTypeExpression(expr) {
		a.Type, _ = l.dtype(t, text)
		return
	}
	var types []array.DType
	if !l.numberTypes(t, expr, &types) {
		return
	}
	e := l.compiled(t, "type", text, expr)
	if e == nil {
		return
	}
	e.text = text
	for _, name := range e.rule.rule.Uses() {
		if name < len(l.Declared.Axes) {
			l.problems.add(t.at("type"), "%q in %s is %q: a type depends on knobs only, and %s is an axis", "type", t.name, clip(text), l.Declared.Axes[name])
			return
		}
	}
	for _, other := range types[1:] {
		if other.Float() != types[0].Float() {
			l.problems.add(t.at("type"), "%q in %s is %q: %s and %s; want floating-point types or integer types, not both", "type", t.name, clip(text), types[0], other)
			return
		}
	}
	a.TypeRule = e
	values := make([]int, len(l.Declared.Axes))
	for _, knob := range l.Knobs {
		values = append(values, knob.Default)
	}
	if a.Type, err = a.typeFor(values); err != nil {
		l.problems.add(t.at("type"), "%q in %s is %q: %v", "type", t.name, clip(text), err)
	}
}

// isTypeExpression reports whether an expression may choose a type: a bare name is a type itself.
func isTypeExpression(expr syntax.Expr) bool {
	switch e := expr.(type) {
	case *syntax.CondExpr:
		return true
	case *syntax.ParenExpr:
		return isTypeExpression(e.X)
	case *syntax.Literal:
		return e.Token == syntax.STRING
	}
	return false
}

// numberTypes replaces the types among the results of an expression by their indices in array.DTypes,
// which the language of expressions can compute with. It adds them to types.
func (l *loader) numberTypes(t *table, expr syntax.Expr, types *[]array.DType) bool {
	switch e := expr.(type) {
	case *syntax.CondExpr:
		yes := l.numberTypes(t, e.True, types)
		return l.numberTypes(t, e.False, types) && yes
	case *syntax.ParenExpr:
		return l.numberTypes(t, e.X, types)
	case *syntax.Literal:
		if name, ok := e.Value.(string); ok {
			d, known := l.dtype(t, name)
			e.Token, e.Value = syntax.INT, int64(slices.Index(array.DTypes, d))
			*types = append(*types, d)
			return known
		}
	}
	l.problems.add(t.at("type"), "%q in %s: want types in quotes, such as \"'bf16' if USE_BF16 else 'f16'\"", "type", t.name)
	return false
}

// dtype looks up the name of a number format. An absent one has been reported.
func (l *loader) dtype(t *table, text string) (array.DType, bool) {
	if text == "" || slices.Contains(array.DTypes, array.DType(text)) {
		return array.DType(text), text != ""
	}
	var names []string
	for _, d := range array.DTypes {
		names = append(names, string(d))
	}
	meant := hint(text, names)
	if d, ok := typeNames[strings.TrimSuffix(text, "_t")]; ok {
		meant = fmt.Sprintf("; did you mean %q?", d)
	}
	if !strings.Contains(meant, "there are") {
		meant += " There are " + strings.Join(names, ", ")
	}
	l.problems.add(t.at("type"), "unknown type %q in %s%s", text, t.name, meant)
	return "", false
}

// fill reads how the elements of a buffer are drawn: a name, or a call with two numbers.
func (l *loader) fill(t *table, dtype array.DType) Fill {
	if n := t.table["fill"]; n.kind() != "a string" {
		t.wrongType("fill", n, "a string such as \"normal\" or \"integers(0, 10)\"")
		return Fill{}
	}
	text := strings.Join(strings.Fields(t.text("fill")), " ")
	if text == "" {
		return Fill{}
	}
	wrong := func(format string, args ...any) Fill {
		l.problems.add(t.at("fill"), "%q in %s is %q: %s", "fill", t.name, clip(text), fmt.Sprintf(format, args...))
		return Fill{}
	}
	expr, err := rule.ParseSyntax(text)
	if err != nil {
		return wrong("%v", err)
	}
	var args []syntax.Expr
	call, isCall := expr.(*syntax.CallExpr)
	if isCall {
		expr, args = call.Fn, call.Args
	}
	name, ok := expr.(*syntax.Ident)
	if !ok {
		return wrong("want one of %s", strings.Join(fills, ", "))
	}
	if !slices.Contains(fills, name.Name) {
		return wrong("unknown fill %q%s", name.Name, hint(name.Name, fills))
	}
	ranged := slices.Contains(ranges, name.Name)
	switch {
	case ranged && len(args) != 2:
		return wrong("%s takes two numbers, such as %s(0, 10)", name.Name, name.Name)
	case !ranged && len(args) > 0:
		return wrong("%s takes no numbers", name.Name)
	case dtype != "" && dtype.Float() && name.Name == "offsets":
		return wrong("offsets are integers, and %s is a floating-point type", dtype)
	case dtype != "" && !dtype.Float() && (name.Name == "normal" || name.Name == "uniform"):
		return wrong("%s draws real numbers, and %s is an integer type; use integers(a, b)", name.Name, dtype)
	}
	f := Fill{Kind: name.Name}
	if ranged {
		f.A, f.B = l.compiled(t, "fill", text, args[0]), l.compiled(t, "fill", text, args[1])
	}
	return f
}

// tensorMap reads a tensor map of another argument.
func (l *loader) tensorMap(t *table, a *Arg) {
	l.forbid(t, "a tensor map takes it from its argument; remove the key", "type", "shape", "fill", "file", "zero")
	m := t.inner("tensormap", fmt.Sprintf("tensormap of %s", t.name), required)
	if m == nil {
		return
	}
	rule := &MapRule{Arg: -1, Swizzle: tensormap.Swizzles[0], OOB: tensormap.OOBs[0]}
	var buffers []string
	for _, o := range l.Declared.Args {
		if o.Role.IsBuffer() {
			buffers = append(buffers, o.Name)
		}
	}
	if name := m.text("arg"); slices.Contains(buffers, name) {
		rule.Arg = slices.IndexFunc(l.Declared.Args, func(o Arg) bool { return o.Name == name && o.Role.IsBuffer() })
		a.Type = l.Declared.Args[rule.Arg].Type
		if l.Declared.Args[rule.Arg].When != nil {
			l.problems.add(m.at("arg"), "%q in %s is %q, which has a %q; a tensor map needs a buffer in every shape", "arg", m.name, name, "when")
		}
	} else if name != "" {
		l.problems.add(m.at("arg"), "%q in %s is %q, which is no buffer%s", "arg", m.name, name, hint(name, buffers))
	}
	if n := m.need("box"); n != nil {
		rule.Box = l.exprs(m, "box", n, maxRank)
	}
	if rule.Arg >= 0 && rule.Box != nil {
		if rank := len(l.Declared.Args[rule.Arg].Shape); rank > 0 && rank != len(rule.Box) {
			l.problems.add(m.at("box"), "%q in %s has %d extents; %s has %d dimensions", "box", m.name, len(rule.Box),
				l.Declared.Args[rule.Arg].Name, rank)
			rule.Box = nil
		}
	}
	if n := m.get("order"); n != nil {
		rule.Order = l.exprs(m, "order", n, maxRank)
		if len(rule.Order) > 0 && len(rule.Box) > 0 && len(rule.Order) != len(rule.Box) {
			l.problems.add(n.line, "%q in %s has %d dimensions; %q has %d", "order", m.name, len(rule.Order), "box", len(rule.Box))
			rule.Order = nil
		}
	}
	rule.Swizzle = word(m, "swizzle", rule.Swizzle, tensormap.Swizzles)
	if n := m.get("swizzle_bytes"); n != nil {
		rule.SwizzleBytes = l.expr(m, "swizzle_bytes", n)
		if m.get("swizzle") != nil {
			l.problems.add(n.line, "%s has both %q and %q; choose one", m.name, "swizzle", "swizzle_bytes")
		}
	}
	rule.OOB = word(m, "oob", rule.OOB, tensormap.OOBs)
	m.close()
	a.Map = rule
}

// word reads an optional word of a list.
func word(t *table, key, absent string, words []string) string {
	if t.get(key) == nil {
		return absent
	}
	text := t.text(key)
	if text != "" && !slices.Contains(words, text) {
		t.problems.add(t.at(key), "unknown %s %q in %s%s", key, text, t.name, hint(text, words))
	}
	return text
}
