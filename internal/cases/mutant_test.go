package cases_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file mutates cases for the campaign (TestMutants) and the fuzz target (FuzzMutant). A mutant is
// made of whole words, lines and JSON values, so that most mutants are read and many of them run.

// chooser makes the choices of a mutation: from the bytes of the fuzzer, or from a random source.
type chooser struct {
	data   []byte
	random *rand.Rand // nil for the bytes
}

// below returns a number from 0 to n-1; 0 where the bytes are used up.
func (c *chooser) below(n int) int {
	if c.random != nil {
		return c.random.IntN(n)
	}
	if len(c.data) < 2 {
		c.data = nil
		return 0
	}
	value := int(binary.LittleEndian.Uint16(c.data))
	c.data = c.data[2:]
	return value % n
}

func pick[T any](c *chooser, list []T) T { return list[c.below(len(list))] }

// original is a case of the repository.
type original struct {
	file, json, ptx string
}

// corpus returns the cases of testdata whose PTX has at most so many bytes, the small ones first.
func corpus(tb testing.TB, most int) []original {
	tb.Helper()
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatal(files, err)
	}
	var all []original
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var c struct {
			PTX string `json:"ptx"`
		}
		if err := json.Unmarshal(text, &c); err != nil {
			tb.Fatal(err)
		}
		ptx, err := os.ReadFile(filepath.Join(filepath.Dir(file), c.PTX))
		if err != nil {
			tb.Fatal(err)
		}
		if len(ptx) <= most {
			all = append(all, original{file, string(text), string(ptx)})
		}
	}
	all = append(all, handwritten...)
	slices.SortStableFunc(all, func(a, b original) int { return len(a.ptx) + len(a.json) - len(b.ptx) - len(b.json) })
	return all
}

// handwritten are kernels with what the cases lack: functions, recursion, local memory, printf and
// the heap.
var handwritten = []original{{file: "handwritten", json: `{"ptx": "k.ptx", "arch": "sm_90a", "entry": "k", "grid": [2,1,1], "block": [33,1,1], "cluster": [1,1,1],
"shared": 64, "args": [{"bytes": 4096}, {"u32": 5}], "expect": {"args": {}, "findings": []}}`, ptx: `.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 a);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 text[] = {37,100,32,37,115,32,37,56,46,51,102,10,0};
.global .align 8 .u64 table[2] = {generic(text), text};
.const .align 4 .u32 limits[3] = {1, 2, 3};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r, .param .b64 s) two(.param .b32 a, .param .b64 b)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	.reg .pred %p<2>;
	.local .align 8 .b8 l[16];
	.param .b32 a2; .param .b64 b2; .param .b32 r2; .param .b64 s2;
	ld.param.u32 %r1, [a];
	ld.param.u64 %rd1, [b];
	st.local.u32 [l+4], %r1;
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra DONE;
	sub.u32 %r1, %r1, 1;
	st.param.b32 [a2], %r1;
	st.param.b64 [b2], %rd1;
	call (r2, s2), two, (a2, b2);
	ld.param.u32 %r2, [r2];
	ld.local.u32 %r3, [l+4];
	add.u32 %r1, %r2, %r3;
DONE:
	st.param.b32 [r], %r1;
	st.param.b64 [s], %rd1;
	ret;
}
.func (.reg .b32 r) plus(.reg .b32 a, .reg .pred p)
{
	add.u32 r, a, 1;
	@p add.u32 r, r, 1;
	ret;
}
.visible .entry k(.param .u64 out, .param .u32 n)
{
	.reg .pred %p<4>;
	.reg .b32 %r<12>;
	.reg .f64 %fd<2>;
	.reg .b64 %rd<12>;
	.local .align 8 .b8 args[24];
	.param .b32 a; .param .b64 b; .param .b32 r; .param .b64 s;
	.param .b64 f; .param .b64 g; .param .b32 c;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd2, %r2, 4;
	add.s64 %rd2, %rd1, %rd2;
	st.param.b32 [a], %r1;
	st.param.b64 [b], %rd1;
	call (r, s), two, (a, b);
	ld.param.u32 %r3, [r];
	setp.lt.u32 %p1, %r2, 4;
	call (%r4), plus, (%r3, %p1);
	st.param.b64 [b], 64;
	call (s), malloc, (b);
	ld.param.u64 %rd3, [s];
	setp.ne.u64 %p2, %rd3, 0;
	@%p2 st.u32 [%rd3+4], %r4;
	st.param.b64 [b], %rd3;
	call free, (b);
	mov.u64 %rd4, text;
	cvta.global.u64 %rd4, %rd4;
	mov.u64 %rd5, args;
	cvta.local.u64 %rd5, %rd5;
	st.local.u32 [args], %r4;
	st.local.u64 [args+8], %rd4;
	mov.f64 %fd1, 0d4004000000000000;
	st.local.f64 [args+16], %fd1;
	st.param.b64 [f], %rd4;
	st.param.b64 [g], %rd5;
	call (c), vprintf, (f, g);
	mov.u64 %rd6, two;
	P: .callprototype (.param .b32 r, .param .b64 s) _ (.param .b32 a, .param .b64 b);
	st.param.b32 [a], 2;
	st.param.b64 [b], %rd1;
	call (r, s), %rd6, (a, b), P;
	ld.const.u32 %r5, [limits+4];
	and.b32 %r6, %r2, 1;
	T: .branchtargets EVEN, ODD;
	brx.idx %r6, T;
EVEN:
	add.u32 %r5, %r5, 1;
ODD:
	setp.gt.u32 %p3, %r5, 100;
	@!%p3 bra STORE;
	call __assertfail, (f, f, a, g, g);
STORE:
	st.global.u32 [%rd2], %r5;
	ret;
}
`}}

// mutator mutates cases. It has the words and lines of all of them.
type mutator struct {
	corpus []original
	lines  []string            // instructions of any kernel
	words  map[string][]string // modifiers, by the opcode that they occur with
	every  []string            // all modifiers
}

var (
	wordPattern     = regexp.MustCompile(`[%$\w]+|\.[\w:]+`)
	numberPattern   = regexp.MustCompile(`\b(0[xX][0-9a-fA-F]+|\d+)\b`)
	registerPattern = regexp.MustCompile(`%[a-z]+\d+`)
	opcodePattern   = regexp.MustCompile(`^\s*(?:@!?%\w+\s+)?([a-z]\w*)((?:\.[\w:]+)*)`)
	labelPattern    = regexp.MustCompile(`(?m)^([$\w]+):`)
)

func newMutator(all []original) *mutator {
	m := &mutator{corpus: all, words: map[string][]string{}}
	seen := map[string]bool{}
	for _, c := range all {
		for line := range strings.Lines(c.ptx) {
			line = strings.TrimSuffix(line, "\n")
			found := opcodePattern.FindStringSubmatch(line)
			if found == nil || !strings.Contains(line, ";") || seen[line] {
				continue
			}
			seen[line] = true
			m.lines = append(m.lines, line)
			for _, word := range strings.Split(found[2], ".")[1:] {
				if !slices.Contains(m.words[found[1]], word) {
					m.words[found[1]] = append(m.words[found[1]], word)
				}
				if !slices.Contains(m.every, word) {
					m.every = append(m.every, word)
				}
			}
		}
	}
	return m
}

// values are numbers at the edges of what sizes, counts and addresses may be.
var values = []int64{
	0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 255, 256, 1023, 1024, 1025, 4095, 4096, 49152, 65535, 65536, 1 << 20, 1<<24 - 1, 1 << 24,
	1 << 28, 500_000_000, 1 << 30, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 40, 1<<62 - 1, 1 << 62, 1<<63 - 1, -1 << 63, -2, -4, -128, -1 << 31,
}

// mutate returns a mutant of a case: JSON and PTX. edits is the number of changes.
func (m *mutator) mutate(c *chooser, from original, edits int) (text, ptx string) {
	text, ptx = from.json, from.ptx
	for range edits {
		if c.below(4) == 0 {
			text = m.mutateJSON(c, text)
		} else {
			ptx = m.mutatePTX(c, ptx)
		}
	}
	return text, ptx
}

// mutatePTX changes one line.
func (m *mutator) mutatePTX(c *chooser, ptx string) string {
	lines := strings.Split(ptx, "\n")
	isPlain := func(line string) bool { return strings.Contains(line, ";") && opcodePattern.MatchString(line) }
	at, declarations := c.below(len(lines)), c.below(8) == 0
	for range len(lines) { // mostly an instruction
		if isPlain(lines[at]) || declarations && strings.TrimSpace(lines[at]) != "" {
			break
		}
		at = (at + 1) % len(lines)
	}
	line := lines[at]
	switch c.below(12) {
	case 0:
		lines = slices.Delete(lines, at, at+1)
	case 1:
		lines = slices.Insert(lines, at, line)
	case 2:
		to := c.below(len(lines))
		lines[at], lines[to] = lines[to], line
	case 3: // an instruction of any kernel, with registers of this one
		lines = slices.Insert(lines, at, m.adapt(c, pick(c, m.lines), ptx))
	case 4, 5:
		lines[at] = replaceOne(c, registerPattern, line, func(string) string { return m.register(c, ptx) })
	case 6, 7:
		lines[at] = replaceOne(c, numberPattern, line, func(string) string { return fmt.Sprint(pick(c, values)) })
	case 8, 9:
		lines[at] = m.changeModifier(c, line)
	case 10:
		lines[at] = changeGuard(c, line)
	case 11:
		lines[at] = replaceOne(c, wordPattern, line, func(string) string { return m.word(c, ptx) })
	}
	return strings.Join(lines, "\n")
}

// adapt replaces the registers of a line by registers of a kernel.
func (m *mutator) adapt(c *chooser, line, ptx string) string {
	return registerPattern.ReplaceAllStringFunc(line, func(old string) string {
		class := strings.TrimRight(old, "0123456789")
		for range 4 {
			if r := m.register(c, ptx); strings.TrimRight(r, "0123456789") == class {
				return r
			}
		}
		return old
	})
}

func (m *mutator) register(c *chooser, ptx string) string {
	if all := registerPattern.FindAllString(ptx, -1); len(all) > 0 {
		return pick(c, all)
	}
	return "%r1"
}

// word returns a label, a word of the kernel, or one that is rare.
func (m *mutator) word(c *chooser, ptx string) string {
	labels := labelPattern.FindAllStringSubmatch(ptx, -1)
	switch {
	case c.below(3) == 0 && len(labels) > 0:
		return pick(c, labels)[1]
	case c.below(2) == 0:
		return pick(c, wordPattern.FindAllString(ptx, -1))
	}
	return pick(c, []string{
		"%tid.x", "%clock64", "%laneid", "%smid", ".b128", ".f64", ".v4", ".v8", ".pred", ".extern", ".entry", ".func", ".local", ".const", ".param", ".shared",
		"_", "vprintf", "malloc", "free", "__assertfail", "0f7FC00000", "0d7FF0000000000000", ".align 1073741824", "WARP_SZ", ".noreturn", ".maxntid", ".b8",
	})
}

func (m *mutator) changeModifier(c *chooser, line string) string {
	found := opcodePattern.FindStringSubmatchIndex(line)
	if found == nil {
		return line
	}
	words := strings.Split(line[found[4]:found[5]], ".")
	list := m.every
	if own := m.words[line[found[2]:found[3]]]; len(own) > 0 && c.below(3) > 0 {
		list = own
	}
	at := 1 + c.below(len(words))
	switch {
	case at == len(words):
		words = append(words, pick(c, list))
	case c.below(3) == 0:
		words = slices.Delete(words, at, at+1)
	default:
		words[at] = pick(c, list)
	}
	return line[:found[4]] + strings.Join(words, ".") + line[found[5]:]
}

func changeGuard(c *chooser, line string) string {
	trimmed := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(trimmed, "@!"):
		return "@" + trimmed[2:]
	case strings.HasPrefix(trimmed, "@"):
		_, rest, _ := strings.Cut(trimmed, " ")
		return rest
	}
	return fmt.Sprintf("@%%p%d %s", 1+c.below(3), trimmed)
}

func replaceOne(c *chooser, pattern *regexp.Regexp, line string, with func(string) string) string {
	places := pattern.FindAllStringIndex(line, -1)
	if len(places) == 0 {
		return line
	}
	p := pick(c, places)
	return line[:p[0]] + with(line[p[0]:p[1]]) + line[p[1]:]
}

// mutateJSON changes one value of a case.
func (m *mutator) mutateJSON(c *chooser, text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var document map[string]any
	if decoder.Decode(&document) != nil {
		return text
	}
	delete(document, "hw")
	delete(document, "about")
	keys := []string{"grid", "block", "cluster", "shared", "args", "args", "args", "arch", "entry", "expect"}
	key := pick(c, keys)
	switch value := document[key].(type) {
	case []any:
		document[key] = m.mutateList(c, value)
	case map[string]any:
		m.mutateObject(c, value)
	case string:
		document[key] = pick(c, []string{"sm_70", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_5", "", "k"})
	default:
		document[key] = m.scalar(c)
	}
	changed, err := json.Marshal(document)
	if err != nil {
		return text
	}
	return string(changed)
}

func (m *mutator) scalar(c *chooser) any { return json.Number(fmt.Sprint(pick(c, values))) }

func (m *mutator) mutateList(c *chooser, list []any) []any {
	list = slices.Clone(list)
	if len(list) == 0 {
		return append(list, m.scalar(c))
	}
	at := c.below(len(list))
	switch object, isObject := list[at].(map[string]any); {
	case isObject && c.below(3) > 0:
		m.mutateObject(c, object)
	case c.below(4) == 0:
		list = slices.Delete(list, at, at+1)
	case c.below(4) == 0:
		list = slices.Insert(list, at, list[at])
	case c.below(3) == 0 && isObject:
		list[at] = map[string]any{pick(c, []string{"u32", "u64", "bytes"}): m.scalar(c)}
	case isObject:
		to := c.below(len(list))
		list[at], list[to] = list[to], list[at]
	default:
		list[at] = m.scalar(c)
	}
	return list
}

func (m *mutator) mutateObject(c *chooser, object map[string]any) {
	keys := slices.Sorted(maps.Keys(object))
	if len(keys) == 0 {
		return
	}
	key := pick(c, keys)
	switch value := object[key].(type) {
	case map[string]any:
		m.mutateObject(c, value)
	case []any:
		object[key] = m.mutateList(c, value)
	case string:
		switch at := c.below(len(value)/2 + 1); c.below(4) {
		case 0:
			object[key] = value[:2*at]
		case 1:
			object[key] = value + value[:2*at]
		case 2:
			object[key] = pick(c, []string{"", "none", "32B", "64B", "128B", "16B", "nan", "zero", "u8", "f16", "f32", "bf16", "f64", "tf32"})
		default:
			delete(object, key)
			object["bytes"] = m.scalar(c)
		}
	default:
		object[key] = m.scalar(c)
	}
}
