package clib

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"attune/internal/arch"
	"attune/internal/array"
	"attune/internal/form"
	"attune/internal/rule"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// The outputs of a form: FP16 without LSE, or what these add.
const (
	BF16    = 1
	LSE     = 2
	Outputs = 4
)

// Library is what the generated part of the C library is made of.
type Library struct {
	Selection *spec.Selection
	Arch      string // of the images, such as sm_90a
	Version   string // of attune

	// Images has the images of each choice of the selection, by output. An output without one is
	// computed by a companion, or refused. The first is required.
	Images [][Outputs]*toolchain.Image

	Companions []*form.Form // of declared kernels: at most one of a kernel, a head dim and the bits of its queries
}

// forms lists the distinct forms: those of the choices in their order, then the companions.
func (l *Library) forms() []*form.Form {
	var all []*form.Form
	for output := range Outputs {
		for _, images := range l.Images {
			if images[output] != nil && formIndex(all, images[output]) < 0 {
				all = append(all, form.Dense(images[output]))
			}
		}
	}
	return append(all, l.Companions...)
}

// formIndex is the place of an image among the forms, -1 for none.
func formIndex(forms []*form.Form, image *toolchain.Image) int {
	if image == nil {
		return -1
	}
	return slices.IndexFunc(forms, func(f *form.Form) bool { return f.Variant() == image.Record.Variant })
}

// newTranslator declares the properties of a shape with the ranges that attune_sdpa.c accepts. It
// refuses tensors of more than 2^31 elements, so there are no more heads than that.
func newTranslator() *rule.C {
	limits := map[string]rule.Interval{"heads": rule.Between(1, 1<<31), "kv_heads": rule.Between(1, 1<<31), "causal": rule.Between(0, 1)}
	t := &rule.C{}
	names, _ := tensor.Shape{}.Axes()
	for _, name := range names {
		limit, ok := limits[name]
		if !ok {
			limit = rule.Between(1, tensor.MaxExtent)
		}
		t.Declare("s->"+name, limit)
	}
	return t
}

// preferences are predicates of a selection that hold where another kernel should compute a problem
// without options, and by which form: attune_sdpa_prefers_decode and so on. A selection without them
// leaves all problems to its own variants.
var preferences = []string{"prefers_decode", "prefers_native", "prefers_tiles_of_64", "prefers_small_tiles", "prefers_tiles_of_192", "prefers_steps_of_64", "prefers_mixed"}

// function is a C function of a shape, and the names that its body uses: the properties of a shape,
// then the predicates.
type function struct {
	name, body string
	uses       []int
}

// chooser translates a selection to the function attune_sdpa_choose and those of the preferences.
func chooser(s *spec.Selection) (string, error) {
	t := newTranslator()
	properties, _ := tensor.Shape{}.Axes()
	uses := make([][]int, len(properties)) // by name
	var rules []string                     // by predicate
	for _, p := range s.Predicates {
		text, limits, err := t.Number(p.Compiled())
		if err != nil {
			return "", fmt.Errorf("%s: the predicate %s, %q, cannot become C: %w", s.Name, p.Name, p.Rule, err)
		}
		rules, uses = append(rules, text), append(uses, p.Compiled().Uses())
		t.Declare("p_"+p.Name, limits)
	}
	choose, err := chooseFunction(s, t)
	if err != nil {
		return "", err
	}
	functions := []function{choose}
	for _, name := range preferences {
		f := function{name: "attune_sdpa_" + name, body: "  return 0;\n"}
		if i := slices.IndexFunc(s.Predicates, func(p spec.Predicate) bool { return p.Name == name }); i >= 0 {
			f.body, f.uses = "  return p_"+name+" != 0;\n", []int{len(properties) + i}
		}
		functions = append(functions, f)
	}
	var code strings.Builder
	for _, helper := range t.Helpers() {
		code.WriteString(helper + "\n")
	}
	for _, f := range functions {
		fmt.Fprintf(&code, "int %s(const attune_sdpa_shape *s) {\n  (void)s;\n", f.name)
		needed := closure(f.uses, uses)
		for i, p := range s.Predicates {
			if slices.Contains(needed, len(properties)+i) {
				fmt.Fprintf(&code, "  /* %s: %s */\n  const int64_t p_%s = %s;\n", p.Name, comment(p.Rule), p.Name, rules[i])
			}
		}
		code.WriteString(f.body + "}\n")
	}
	return code.String(), nil
}

// chooseFunction returns the number of the first choice whose condition holds.
func chooseFunction(s *spec.Selection, t *rule.C) (function, error) {
	f := function{name: "attune_sdpa_choose"}
	for i, c := range s.Choices {
		if c.When == "" {
			f.body += fmt.Sprintf("  return %d;\n", i)
			continue
		}
		condition, err := t.Condition(c.Condition())
		if err != nil {
			return f, fmt.Errorf("%s: the condition %q cannot become C: %w", s.Name, c.When, err)
		}
		f.uses = append(f.uses, c.Condition().Uses()...)
		f.body += fmt.Sprintf("  /* %s */\n  if %s return %d;\n", comment(c.When), parenthesised(condition), i)
	}
	return f, nil
}

// closure adds to names those that they use.
func closure(names []int, uses [][]int) []int {
	all := slices.Clone(names)
	for i := 0; i < len(all); i++ {
		for _, name := range uses[all[i]] {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// comment is a rule inside a C comment, on one line.
func comment(rule string) string {
	return strings.NewReplacer("*/", "* /", "/*", "/ *", "\\", "").Replace(strings.Join(strings.Fields(rule), " "))
}

// parenthesised is a condition of an if statement.
func parenthesised(condition string) string {
	if strings.HasPrefix(condition, "(") && strings.HasSuffix(condition, ")") {
		return condition
	}
	return "(" + condition + ")"
}

// table writes attune_sdpa_forms.c.
func (l *Library) table() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	number, _ := arch.Number(l.Arch)
	if number == 0 {
		return nil, fmt.Errorf("the architecture %q has no compute capability; want one such as sm_90a", l.Arch)
	}
	choose, err := chooser(l.Selection)
	if err != nil {
		return nil, err
	}
	var c bytes.Buffer
	c.WriteString("#include \"attune_sdpa_forms.h\"\n\n#include <math.h>\n\n")
	fmt.Fprintf(&c, "const char attune_sdpa_version_text[] = %s;\n", strconv.Quote(l.Version+" "+l.Selection.Name+" "+l.Arch))
	fmt.Fprintf(&c, "const int attune_sdpa_arch = %d;\n\n", number)
	c.WriteString(choose + "\n")
	forms := l.forms()
	images := map[string]string{} // the C array of each image
	for _, f := range forms {
		_, code := f.Code()
		if images[string(code)] == "" {
			images[string(code)] = fmt.Sprintf("image_%d", len(images))
			writeWords(&c, images[string(code)], code)
		}
	}
	fmt.Fprintf(&c, "const int attune_sdpa_dense_count = %d, attune_sdpa_form_count = %d;\n\nconst attune_sdpa_form_info attune_sdpa_forms[] = {\n",
		len(forms)-len(l.Companions), len(forms))
	for _, f := range forms {
		_, code := f.Code()
		if err := writeForm(&c, f, images[string(code)]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Variant(), err)
		}
	}
	fmt.Fprintf(&c, "};\n\nconst int attune_sdpa_choices[][ATTUNE_SDPA_OUTPUTS] = {\n")
	for _, outputs := range l.Images {
		var indices []string
		for _, image := range outputs {
			indices = append(indices, strconv.Itoa(formIndex(forms, image)))
		}
		fmt.Fprintf(&c, "    {%s},\n", strings.Join(indices, ", "))
	}
	c.WriteString("};\n")
	return c.Bytes(), nil
}

// check refuses a library that the C code cannot launch.
func (l *Library) check() error {
	if len(l.Images) != len(l.Selection.Choices) {
		return fmt.Errorf("%s has %d choices, and there are images of %d", l.Selection.Name, len(l.Selection.Choices), len(l.Images))
	}
	for i, outputs := range l.Images {
		if outputs[0] == nil {
			return fmt.Errorf("%s has no image of %s", l.Selection.Name, l.Selection.Choices[i].Variant)
		}
		for output, image := range outputs {
			if image == nil {
				continue
			}
			if launch := image.Record.Launch; (launch.Output == toolchain.BF16) != (output&BF16 != 0) || (launch.LSE != "") != (output&LSE != 0) {
				return fmt.Errorf("%s: its outputs are %q and %q, which is not output %d", image.Record.Variant, launch.Output, launch.LSE, output)
			}
		}
	}
	for _, f := range l.forms() {
		if err := f.Check(); err != nil {
			return fmt.Errorf("%s: %w", f.Variant(), err)
		}
	}
	return nil
}

// argumentNames are the arguments that the C sources have values for, as attune_sdpa_forms.h lists
// them.
var argumentNames = sync.OnceValue(func() []string {
	header, err := sources.ReadFile("src/attune_sdpa_forms.h")
	if err != nil {
		panic("BUG: attune_sdpa_forms.h is not embedded: " + err.Error())
	}
	return regexp.MustCompile(`ATTUNE_ARG_[A-Z0-9_]+`).FindAllString(string(header), -1)
})

// arguments are the arguments of a form as a list in C.
func arguments(f *form.Form) (string, error) {
	var all []string
	maps := 0
	for _, a := range f.Arguments {
		name := "ATTUNE_ARG_" + strings.ToUpper(a.Name)
		if a.Map != nil {
			name = fmt.Sprintf("ATTUNE_ARG_MAP_%d", maps)
			maps++
		}
		if !slices.Contains(argumentNames(), name) {
			return "", fmt.Errorf("the library has no value for its argument %s", a.Name)
		}
		all = append(all, name)
	}
	if len(all) > maxArguments {
		return "", fmt.Errorf("it has %d arguments, and the library passes at most %d", len(all), maxArguments)
	}
	return strings.Join(all, ", "), nil
}

// maxArguments is ATTUNE_SDPA_MAX_ARGUMENTS.
const maxArguments = 64

// cacheTypes are the values of attune_sdpa_dtype; 0 is none.
var cacheTypes = map[array.DType]int{array.E4M3: 1, array.F16: 2, array.BF16: 3}

// writeForm writes a line of attune_sdpa_forms.
func writeForm(c *bytes.Buffer, f *form.Form, image string) error {
	list, err := arguments(f)
	if err != nil {
		return err
	}
	flag := map[bool]int{true: 1}
	kind, _ := f.Code()
	number, exact := arch.Number(f.Target.Arch)
	fmt.Fprintf(c, "    {.kernel = ATTUNE_KERNEL_%s,\n     .variant = %s,\n     .entry = %s,\n     .image = %s, .arch = %d, .is_exact = %d, .is_ptx = %d, .waits = %d,\n",
		strings.ToUpper(string(f.Kernel)), strconv.Quote(f.Variant()), strconv.Quote(f.Target.EntryName()), image, number, flag[exact], flag[kind == form.PTX], flag[f.Waits()])
	fmt.Fprintf(c, "     .head_dim = %d, .threads = %d, .shared_bytes = %d, .cluster = %d, .cooperative = %d,\n",
		f.HeadDim, f.Threads, f.SharedBytes, f.Cluster, flag[f.Cooperative])
	fmt.Fprintf(c, "     .blocks_per_multiprocessor = %d, .query_rows = %d, .step_keys = %d, .chunks = %d,\n     .max_blocks = %d, .bf16 = %d, .linear_eighths = %d, .cache_dtype = %d,\n     .has_options = %d, .packs_heads = %d, .splits = %d, .e4m3_v = %d,\n",
		f.BlocksPerMultiprocessor, f.QueryRows, f.StepKeys, f.Chunks, f.MaxBlocks, flag[f.BF16], f.LinearEighths, cacheTypes[f.Cache],
		flag[f.HasOptions], flag[f.PacksHeads], flag[f.Splits], flag[f.E4M3V])
	fmt.Fprintf(c, "     .argument_count = %d, .map_count = %d,\n     .arguments = {%s},\n     .maps = {", len(f.Arguments), len(f.Maps()), list)
	for _, m := range f.Maps() {
		fmt.Fprintf(c, "{%d, %d, %d, %d, %d, %d, %d}, ", m.Tensor, m.ElementBytes, m.Rank, m.Columns, m.Rows, m.PagedRows, m.SwizzleBytes)
	}
	if len(f.Maps()) == 0 {
		c.WriteString("{0, 0, 0, 0, 0, 0, 0}")
	}
	c.WriteString("}},\n")
	return nil
}

// writeWords writes bytes as an array of 64-bit words: a compiler reads them several times faster
// than single bytes, and they are aligned. Machines with NVIDIA's GPUs are little-endian. The last
// word ends with a zero byte, because PTX is a C string.
func writeWords(c *bytes.Buffer, name string, data []byte) {
	padded := append(slices.Clone(data), make([]byte, 8-len(data)%8)...)
	fmt.Fprintf(c, "static const uint64_t %s[] = { /* %d bytes */\n", name, len(data))
	const perLine = 5
	c.Grow(len(padded) / 8 * len("0x0123456789abcdef, "))
	for i := 0; i < len(padded); i += 8 {
		word := padded[i:][:8]
		slices.Reverse(word)
		line := append(hex.AppendEncode(append(c.AvailableBuffer(), "0x"...), word), ',', ' ')
		if i/8%perLine == perLine-1 {
			line[len(line)-1] = '\n'
		}
		c.Write(line)
	}
	c.WriteString("};\n\n")
}
