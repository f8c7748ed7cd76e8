package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/rule"
	"attune/internal/spec"
)

// ints makes a knob of integers.
func ints(name string, values ...int64) Knob {
	k := Knob{Name: name, Default: -1}
	for _, v := range values {
		k.Values = append(k.Values, rule.Int(v))
	}
	return k
}

// steps makes a knob of the integers from first to last.
func steps(name string, first, last, step int64) Knob {
	var values []int64
	for v := first; v <= last; v += step {
		values = append(values, v)
	}
	return ints(name, values...)
}

// t1Text writes a T1 definition.
func t1Text(knobs []Knob, rules ...string) []byte {
	type parameter struct {
		Name, Type, Values string
		Default            any
	}
	var file struct {
		General            struct{ BenchmarkName string }
		ConfigurationSpace struct {
			TuningParameters []parameter
			Conditions       []struct{ Expression string }
		}
	}
	file.General.BenchmarkName = "test"
	for _, k := range knobs {
		values, _ := json.Marshal(k.Values)
		file.ConfigurationSpace.TuningParameters = append(file.ConfigurationSpace.TuningParameters, parameter{k.Name, "int", string(values), k.Values[0]})
	}
	for _, rule := range rules {
		file.ConfigurationSpace.Conditions = append(file.ConfigurationSpace.Conditions, struct{ Expression string }{rule})
	}
	text, _ := json.Marshal(file)
	return text
}

// The two public spaces have known numbers of allowed variants.
func TestPublicSpaces(t *testing.T) {
	convolution := t1Text([]Knob{
		steps("bx", 16, 256, 16), ints("by", 1, 2, 4, 8, 16), steps("tx", 1, 4, 1), steps("ty", 1, 4, 1), ints("ro", 0, 1), ints("pad", 0, 1),
		ints("shared", 0, 1), ints("h", 15), ints("w", 15),
	}, "bx * by <= 1024", "pad == 0 or bx % 32 != 0", "pad == 0 or shared != 0", "not shared or (bx * tx + w - 1) * (by * ty + h - 1) < 12 * 1024")
	dedispersion := t1Text([]Knob{
		ints("bx", 1, 2, 4, 8, 16, 32), steps("by", 32, 256, 8), steps("tx", 1, 4, 1), steps("ty", 1, 8, 1), ints("sx", 0, 1), ints("sy", 0, 1),
	}, "32 <= bx * by <= 1024", "tx > 1 or sx == 0", "ty > 1 or sy == 0")
	for _, test := range []struct {
		text []byte
		want int
	}{{convolution, 4362}, {dedispersion, 11130}} {
		start := time.Now()
		s, err := ReadT1(test.text)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for p := range s.All() {
			if got++; !s.Allowed(p) {
				t.Fatal("an enumerated variant is not allowed")
			}
		}
		size, exact := s.Size()
		if got != test.want || int(size) != test.want || !exact {
			t.Errorf("%d variants, size %v %v; want %d", got, size, exact, test.want)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the enumeration took %v", took)
		}
	}
}

// The solver agrees with trying every combination, for random rules, in tables and when a component
// is open.
func TestSolverIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	names := []string{"a", "b", "c", "d"}
	forms := []string{
		"%s * %s <= 9", "%s %% %s == 0", "%s + %s != 5", "%s < %s or %[1]s == 4", "%s // (%s - 2) < 2",
		"a * %s * d * %s == 24", "d - %s + a - %s > 1", "not (%s > 2 and %s < 3)", "(%s if %s > 2 else b) < 4", "%s / %s + c >= 2",
		"%s in [1, %s, 3]", "max(%s, c, %s) != 3", "d * 0.1 * %s * b > %s * 0.2", "1 <= %s <= %s", "c %% 3 * %s - (a + %s) * 2 <= 3",
		"%s ** %s < 20", "%s - 2 or 1 // (%s - 1) > 0", "'t' if %s < %s else ''",
	}
	for range 60 {
		var knobs []Knob
		for _, name := range names {
			knobs = append(knobs, steps(name, 1, int64(2+random.IntN(4)), 1))
		}
		var rules []string
		for range 1 + random.IntN(4) {
			rules = append(rules, fmt.Sprintf(forms[random.IntN(len(forms))], names[random.IntN(4)], names[random.IntN(4)]))
		}
		want := bruteForce(t, knobs, rules)
		s, err := NewSpace("random", knobs, rules)
		if len(want) == 0 {
			if !errors.Is(err, ErrEmpty) {
				t.Fatalf("%q: %v, want an empty space", rules, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", rules, err)
		}
		checkSpace(t, s, want, random)
		for i := range s.components { // the same by diagrams
			c := &s.components[i]
			var ok bool
			if c.tree, ok = s.solver(s.rules, c.knobs).Diagram(); !ok || c.tree.Size() != float64(len(c.rows)) {
				t.Fatalf("%q: a diagram of %v combinations, want %d", rules, c.tree.Size(), len(c.rows))
			}
			c.rows = nil
		}
		checkSpace(t, s, want, random)
		for i := range s.components { // and by propagation
			c := &s.components[i]
			c.tree, c.solver = nil, s.solver(s.rules, c.knobs)
		}
		checkSpace(t, s, want, random)
	}
}

func bruteForce(t *testing.T, knobs []Knob, rules []string) map[string]bool {
	t.Helper()
	all, err := NewSpace("all", knobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var compiled []*rule.Rule
	for _, text := range rules {
		terms, err := parsePython(text, knobs)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, terms...)
	}
	want := map[string]bool{}
	for p := range all.All() {
		env := all.Values(p)
		if !slices.ContainsFunc(compiled, func(r *rule.Rule) bool { return !r.Holds(env) }) {
			want[p.Key()] = true
		}
	}
	return want
}

func checkSpace(t *testing.T, s *Space, want map[string]bool, random *rand.Rand) {
	t.Helper()
	n := 0
	for p := range s.All() {
		if n++; !want[p.Key()] || !s.Allowed(p) {
			t.Fatalf("%v is not allowed", p)
		}
	}
	if n != len(want) {
		t.Fatalf("%d variants, want %d", n, len(want))
	}
	grid := newGrid(newHistory(s, 1), Options{})
	for range want {
		if p, ok := grid.Ask(); !ok || !want[p.Key()] {
			t.Fatalf("grid: %v %v", p, ok)
		}
	}
	if p, ok := grid.Ask(); ok {
		t.Fatalf("grid: %v after the last", p)
	}
	if _, ok := grid.Ask(); ok {
		t.Fatal("grid starts again")
	}
	for range 20 {
		p := s.Random(random)
		if !want[p.Key()] {
			t.Fatalf("drew %v", p)
		}
		knob := random.IntN(len(p))
		value := uint16(random.IntN(len(s.Knobs[knob].Values)))
		q, ok := s.near(p, knob, value, random)
		if ok && (!want[q.Key()] || q[knob] != value) {
			t.Fatalf("near: %v", q)
		}
		possible := false
		for r := range s.All() {
			possible = possible || r[knob] == value
		}
		if ok != possible {
			t.Fatalf("near: %v, want %v", ok, possible)
		}
	}
	for range s.All() { // the caller may stop
		break
	}
}

// A component that is too large for a table is drawn from by propagation.
func TestOpenSpace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	var knobs []Knob
	var sum []string
	for i := range 24 {
		name := fmt.Sprintf("k%d", i)
		knobs = append(knobs, ints(name, 0, 1, 2))
		sum = append(sum, name)
	}
	s, err := NewSpace("open", knobs, []string{strings.Join(sum, " + ") + " == 24", "k0 == k1"})
	if err != nil {
		t.Fatal(err)
	}
	// 24 values of 0, 1 or 2 with a sum of 24: the central trinomial coefficient of 22 if the two equal
	// ones are 1, and twice the coefficient beside it but one.
	if n, exact := s.Size(); !exact || n != trinomial(22, 0)+2*trinomial(22, 2) {
		t.Errorf("%v variants %v", n, exact)
	}
	checkOpen(t, s)
	c := &s.components[0]
	c.tree, c.solver = nil, s.solver(s.rules, c.knobs) // by propagation
	if _, exact := s.Size(); exact {
		t.Error("the size is known")
	}
	checkOpen(t, s)
}

// trinomial is the number of ways in which n values of -1, 0 or 1 have a sum.
func trinomial(n, sum int) float64 {
	ways := map[int]float64{0: 1}
	for range n {
		next := map[int]float64{}
		for at, count := range ways {
			for step := -1; step <= 1; step++ {
				next[at+step] += count
			}
		}
		ways = next
	}
	return ways[sum]
}

func checkOpen(t *testing.T, s *Space) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		p := s.Random(random)
		if !s.Allowed(p) || p[0] != p[1] {
			t.Fatalf("drew %v", p)
		}
	}
	for _, name := range Strategies {
		st, err := NewStrategy(name, s, Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			p, ok := st.Ask()
			if !ok || !s.Allowed(p) {
				t.Fatalf("%s: %v %v", name, p, ok)
			}
			st.Tell(p, Result{Cost: 1 + float64(i%7)})
		}
	}
}

// Sums and products over many knobs are solved exactly and at once, although a search knob by knob
// would not end.
func TestManyKnobsInOneConstraint(t *testing.T) {
	knobs := func(n int, last int64) (all []Knob) {
		for i := range n {
			all = append(all, steps(fmt.Sprint("k", i), 1, last, 1))
		}
		return all
	}
	for _, test := range []struct {
		knobs []Knob
		rules []string
		want  float64
	}{
		{knobs(8, 32), []string{"k0*k1*k2*k3*k4*k5*k6*k7 == 1024"}, 16808},
		{knobs(8, 32), []string{"1024 == k7*k2*(k1*k3)*k4*k5*k6*k0"}, 16808},
		{knobs(12, 32), []string{"k0*k1*k2*k3*k4*k5*k6*k7*k8*k9*k10*k11 == 1024"}, 336336},
		{knobs(5, 32), []string{"k0*k1*k2*k3*k4 == 1024"}, 651},
		{knobs(6, 16), []string{"k0+k1+k2+k3+k4+k5 == 90"}, 462},
		{knobs(6, 16), []string{"90 - k5 - k4 - k3 == k0 + k1 + k2"}, 462},
		{knobs(6, 16), []string{"(k0*k1*k2*k3*k4*k5) % 997 == 5"}, 13106},
		{knobs(12, 16), []string{"k0+k1+k2+k3+k4+k5+k6+k7+k8+k9+k10+k11 >= 191"}, 13},
		{knobs(12, 16), []string{"sum([k0,k1]) + k2 + k3 + k4 + k5 + k6 + k7 + k8 + k9 + k10 + k11 <= 13"}, 13},
	} {
		start := time.Now()
		s, err := NewSpace("many", test.knobs, test.rules)
		if err != nil {
			t.Fatal(err)
		}
		if n, exact := s.Size(); n != test.want || !exact {
			t.Errorf("%q: %v variants %v, want %v", test.rules, n, exact, test.want)
		}
		random := rand.New(rand.NewPCG(1, 1))
		for range 1000 {
			if p := s.Random(random); !s.Allowed(p) {
				t.Fatalf("%q: drew %v", test.rules, p)
			}
		}
		if took := time.Since(start); took > 10*time.Second { // some tenths of a second without other load
			t.Errorf("%q took %v", test.rules, took)
		}
	}
}

// Draws from a diagram are uniform: each of 16 combinations comes as often as the others.
func TestDiagramIsUniform(t *testing.T) {
	knobs := []Knob{steps("a", 1, 8, 1), steps("b", 1, 8, 1), steps("c", 1, 8, 1)}
	s := mustSpace(t, knobs, "a * b * c == 16")
	tree, ok := s.solver(s.rules, []int{0, 1, 2}).Diagram()
	if !ok || tree.Size() != float64(len(s.components[0].rows)) {
		t.Fatalf("%v %v", tree, ok)
	}
	random := rand.New(rand.NewPCG(3, 3))
	drawn := map[string]int{}
	const each = 1000
	for range int(tree.Size()) * each {
		drawn[Point(tree.Draw(random)).Key()]++
	}
	for _, row := range s.components[0].rows {
		if n := drawn[row.Key()]; n < each*8/10 || n > each*12/10 {
			t.Errorf("%v was drawn %d times of %d", row, n, each)
		}
	}
}

// Constraints that neither a diagram nor propagation solves end in an error and not in a search
// without an end. If a combination is known, a draw gives up within its limit.
func TestHardConstraints(t *testing.T) {
	if testing.Short() {
		t.Skip("the solver gives up after seconds")
	}
	var knobs []Knob
	digits := "k0"
	for i := range 12 {
		knobs = append(knobs, steps(fmt.Sprint("k", i), 0, 9, 1))
		if i > 0 {
			digits = fmt.Sprintf("(%s) * 10 + k%d", digits, i)
		}
	}
	hard := "(" + digits + ") ** 2 % 999999999989 == 123456"
	_, err := NewSpace("hard", knobs, []string{hard})
	if !errors.Is(err, ErrHard) || !strings.Contains(err.Error(), "999999999989") || !strings.Contains(err.Error(), "fewer values") {
		t.Error(err)
	}
	s := mustSpace(t, knobs)
	for i := range s.components {
		s.components[0].knobs = append(s.components[0].knobs[:i:i], i)
	}
	if s.rules, err = parsePython(strings.Replace(hard, "== 123456", "in [0, 123456]", 1), knobs); err != nil { // 0 is allowed
		t.Fatal(err)
	}
	c := &s.components[0]
	c.rows, c.solver, c.first = nil, s.solver(s.rules, c.knobs), make(Point, len(knobs))
	s.components = s.components[:1]
	for _, name := range []string{"evo", "grid"} {
		st, err := NewStrategy(name, s, Options{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		p, ok := st.Ask()
		if !ok || !s.Allowed(p) {
			t.Errorf("%s: %v %v", name, p, ok)
		}
		st.Tell(p, Result{Cost: 1})
		if p, ok := st.Ask(); ok { // there may be another one, which is not found in time
			t.Errorf("%s: %v %v", name, p, ok)
		}
	}
}

// Contradictions that an enumeration would not find in time are found by propagation, and the error
// names only the rules that contradict each other.
func TestContradiction(t *testing.T) {
	var knobs []Knob
	rules := []string{"k3 < 9"}
	for i := range 30 {
		knobs = append(knobs, ints(fmt.Sprintf("k%d", i), 1, 2, 3))
		if i > 0 {
			rules = append(rules, fmt.Sprintf("k%d <= k%d", i-1, i))
		}
	}
	rules = append(rules, "k28 > k29", "k5 + k6 > 0")
	_, err := NewSpace("never", knobs, rules)
	if !errors.Is(err, ErrEmpty) || err.Error() != `no variant is allowed: no values obey "k28 <= k29" and "k28 > k29"` {
		t.Error(err)
	}
	var eight []Knob
	for i := range 8 {
		eight = append(eight, steps(fmt.Sprint("k", i), 1, 32, 1))
	}
	_, err = NewSpace("prime", eight, []string{"k0 < 30", "k0*k1*k2*k3*k4*k5*k6*k7 == 37"}) // by a diagram
	if !errors.Is(err, ErrEmpty) || err.Error() != `no variant is allowed: no values obey "k0*k1*k2*k3*k4*k5*k6*k7 == 37"` {
		t.Error(err)
	}
	for _, rules := range [][]string{{"1 > 2"}, {"k0 > 3"}, {"k0 > 1 and k0 < 2"}} {
		if _, err := NewSpace("never", knobs, rules); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q: %v", rules, err)
		}
	}
}

func TestSpaceErrors(t *testing.T) {
	many := make([]Knob, maxKnobs+1)
	for i := range many {
		many[i] = ints(fmt.Sprint("k", i), 1)
	}
	for _, test := range []struct {
		knobs []Knob
		rule  string
		want  string
	}{
		{nil, "", "the space has no knobs"},
		{[]Knob{ints("x", 1), ints("x", 1)}, "", `the knob "x" is declared twice`},
		{[]Knob{ints("x")}, "", `the knob "x" has no values`},
		{[]Knob{ints("x", 1, 1)}, "", `the knob "x" has the value 1 twice`},
		{[]Knob{steps("x", 1, maxValues, 1)}, "", `the knob "x" has 65536 values`},
		{many, "", "the space has 1001 knobs"},
		{[]Knob{ints("x", 1)}, "x >", `the constraint "x >": column 4`},
	} {
		if _, err := NewSpace("wrong", test.knobs, []string{test.rule}[:min(len(test.rule), 1)]); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	if _, err := newListed("empty", []Knob{ints("x", 1)}, nil); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if _, err := newListed("empty", nil, nil); err == nil {
		t.Error("no error without knobs")
	}
}

func TestReadT1(t *testing.T) {
	s, err := ReadT1([]byte(`{"ConfigurationSpace": {"TuningParameters": [
		{"Name": "x", "Values": "[2**i for i in range(3)]", "Default": 2},
		{"Name": "y", "Values": [0.5, true, "t"], "Default": [1]}],
		"Conditions": [{"Expression": " "}]}, "KernelSpecification": {"KernelName": "k"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := s.Size(); n != 9 || s.Name != "k" || s.Knobs[0].Default != 1 || s.Knobs[1].Default != -1 {
		t.Errorf("%+v", s)
	}
	if _, ok := s.Default(); ok {
		t.Error("a space without defaults has a default variant")
	}
	if got := s.Format(Point{1, 2}); got != "x=2 y=t" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"{":  "not a T1 definition",
		"{}": "it has no ConfigurationSpace",
		`{"ConfigurationSpace": {"TuningParameters": [{"Values": "[1]"}]}}`:                "tuning parameter 1 has no Name",
		`{"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": "[1"}]}}`:    "the values of x: column 3",
		`{"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": 5}]}}`:       "want an array",
		`{"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": [[1]]}]}}`:   "is not a number",
		`{"ConfigurationSpace": {"TuningParameters": [{"Name": "x", "Values": [1e999]}]}}`: "does not fit",
	} {
		if _, err := ReadT1([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The variants of a stage are those that kernel.toml allows, its own among them.
// A variant gives the space of its stage, with its own values as defaults and some knobs fixed.
func TestOfVariant(t *testing.T) {
	kernel, err := spec.Load(os.DirFS("../../kernels"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := kernel.Variant("stage2+TILE_N=32")
	if err != nil {
		t.Fatal(err)
	}
	s, err := OfVariant(v, "TILE_N")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := s.Default()
	if back, err := VariantOf(v.Stage(), s, p); !ok || err != nil || back.String() != v.String() {
		t.Errorf("%v %v %v", ok, back, err)
	}
	if q, ok := PointOf(s, v); !ok || !slices.Equal(p, q) {
		t.Errorf("%v %v", q, ok)
	}
	if _, ok := PointOf(s, v.Stage().Variant()); ok {
		t.Error("a variant with another value of a fixed knob is in the space")
	}
	if _, err := OfVariant(v, "TILES"); err == nil || err.Error() != `stage2 has no knob "TILES"` {
		t.Error(err)
	}
}

func TestOfStage(t *testing.T) {
	kernel, err := spec.Load(os.DirFS("../../kernels"))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, stage := range kernel.Stages {
		s, err := OfStage(stage)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := s.Default()
		if v, err := VariantOf(stage, s, p); !ok || err != nil || v.String() != stage.Name {
			t.Errorf("%s: the default is %v %v", stage.Name, v, err)
		}
		for range 50 {
			v, err := VariantOf(stage, s, s.Random(random))
			if err != nil {
				t.Fatal(err)
			}
			if v.Exponentials() != stage.Variant().Exponentials() && stage.Variant().Exponentials() == spec.ExactExponentials {
				t.Errorf("%s approximates", v)
			}
			if lse, has := v.Value("USE_LSE"); has && lse != 0 {
				t.Errorf("%s has another output", v)
			}
		}
	}
	// Where Starlark forbids, the solver does too: every change of one knob.
	stage := kernel.Stages[len(kernel.Stages)-1]
	s, err := OfStage(stage)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := s.Default()
	for knob, k := range s.Knobs {
		for v := range k.Values {
			q := p.with(knob, uint16(v))
			v, err := VariantOf(stage, s, q)
			exact := stage.Variant().Exponentials() != spec.ExactExponentials || err == nil && v.Exponentials() == spec.ExactExponentials
			if want := err == nil && exact; want != s.Allowed(q) {
				t.Errorf("%s: allowed %v, kernel.toml: %v", s.Format(q), s.Allowed(q), err)
			}
		}
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "1.0": "1.0", "1e5": "100000.0", "1e-05": "1e-05", "true": "True", "false": "False", `"t"`: "t",
		"123456789012345678901": "1.2345678901234568e+20", "-0.25": "-0.25",
	} {
		var v rule.Value
		if err := json.Unmarshal([]byte(text), &v); err != nil || v.String() != want {
			t.Errorf("%s: %s %v", text, v, err)
		}
		again, err := json.Marshal(v)
		var w rule.Value
		if err != nil || json.Unmarshal(again, &w) != nil || v != w {
			t.Errorf("%s is %s when it is read again", text, w)
		}
	}
	for _, v := range []rule.Value{rule.Real(inf), rule.Real(-inf), rule.Real(inf - inf)} {
		if text, err := json.Marshal(v); err == nil {
			t.Errorf("%s is written as %s", v, text)
		}
	}
	if rule.Text("1").Truth() != true || rule.Text("").Truth() || rule.Real(0).Truth() || rule.Real(1).Equal(rule.Text("1")) {
		t.Error("the truth of values is not Python's")
	}
	if (&rule.Value{}).UnmarshalJSON([]byte("{")) == nil {
		t.Error("broken JSON is a value")
	}
}

func FuzzReadT1(f *testing.F) {
	f.Add(t1Text([]Knob{ints("x", 1, 2), ints("y", 1, 2)}, "x < y"))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = ReadT1(data) })
}
