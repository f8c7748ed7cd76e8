package tune

import (
	"strings"
	"testing"
)

// evaluate evaluates an expression over x = 6, y = 4, s = "a", f = 0.5.
func evaluate(t *testing.T, text string) Value {
	t.Helper()
	terms, err := compile(text, []string{"x", "y", "s", "f"})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var v Value
	for _, e := range terms {
		env := make([]Value, e.slots)
		copy(env, []Value{Int(6), Int(4), Text("a"), Real(0.5)})
		if v = e.value.eval(env); v.kind == badKind || !v.truth() {
			return v
		}
	}
	return v
}

// The results are those of Python 3.
func TestExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"x + y * 2":                           "14",
		"x / y":                               "1.5",
		"-7 // 2":                             "-4",
		"7 // -2":                             "-4",
		"-7 % 3":                              "2",
		"-7.5 % 2":                            "0.5",
		"7.5 // 2":                            "3.0",
		"2 ** 10":                             "1024",
		"2 ** -1":                             "0.5",
		"-2 ** 2":                             "-4",
		"2 ** 3 ** 2":                         "512",
		"2 ** 64":                             "1.8446744073709552e+19",
		"9223372036854775807 + 1":             "9.223372036854776e+18",
		"-9223372036854775807 - 2":            "-9.223372036854776e+18",
		"4611686018427387904 * 4":             "1.8446744073709552e+19",
		"1 << 4 | 1":                          "17",
		"x & 3 ^ 1":                           "3",
		"17 >> 2":                             "4",
		"~x":                                  "-7",
		"+x":                                  "6",
		"0x10 + 1_000":                        "1016",
		"1e3":                                 "1000.0",
		".5":                                  "0.5",
		"1 < x <= 6 < 7":                      "True",
		"32 <= x * y <= 1024":                 "False",
		"x == 6.0":                            "True",
		"s == 'a'":                            "True",
		"s != \"b\"":                          "True",
		"s < 'b'":                             "True",
		"s == 1":                              "False",
		"x in [1, 6, 7,]":                     "True",
		"x not in (1, 2)":                     "True",
		"x in range(0, 12, 3)":                "True",
		"x in [2 * i for i in range(5) if i]": "True",
		"x or y":                              "6",
		"0 or y":                              "4",
		"x && y":                              "4",
		"x == 1 || y == 4":                    "True",
		"not x":                               "False",
		"!(x == 1)":                           "True",
		"x if y > 5 else y":                   "4",
		"x if y < 5 else y":                   "6",
		"min(x, y)":                           "4",
		"max([x, y, 9])":                      "9",
		"sum([x, y])":                         "10",
		"prod([x, y])":                        "24",
		"len(range(10, 0, -3))":               "4",
		"any([0, x])":                         "True",
		"all([0, x])":                         "False",
		"abs(-3) + abs(-0.5)":                 "3.5",
		"int(2.7) + int(x)":                   "8",
		"round(2.5)":                          "2",
		"math.ceil(x / y)":                    "2",
		"math.floor(x / y)":                   "1",
		"sqrt(y)":                             "2.0",
		"log2(y) + log(1)":                    "2.0",
		"float(x)":                            "6.0",
		"bool(x)":                             "True",
		"True and False":                      "False",
		"f * 2":                               "1.0",
	} {
		if got := evaluate(t, text); got.String() != want || got.kind == badKind {
			t.Errorf("%s = %s, want %s", text, got, want)
		}
	}
}

func TestExpressionsWithoutValue(t *testing.T) {
	for _, text := range []string{
		"x // 0", "x % 0", "x / 0", "1.5 // 0", "1.5 % 0", "s + 1", "s < 1", "1 << 70", "1 >> -1", "f | 1", "abs(s)", "min([])", "max(s, x)",
		"log(0)", "int(1e30)", "not x // 0", "x // 0 == 1", "1 == x // 0", "x // 0 in [1]", "x in [1 // 0]", "x in [i // 0 for i in [1]]",
		"x in [1 for i in [1 // 0]]", "x in [1 for i in [1] if 1 // 0]", "1 if x // 0 else 2", "1 + x // 0", "x // 0 + 1", "abs(1 // 0)", "sum([1 // 0])",
		"x in range(0, 5, 0)", "x in range(1.5)", "x in range()", "x in range(1 // 0)", "x in range(1000000)", "x in [1] + [1 // 0]",
		"x in [1 // 0] + [1]", "x in list(range(60000)) + list(range(60000))", "sum(['a'])", "x in [1] == 2",
	} {
		if got := evaluate(t, text); got.kind != badKind && got.truth() {
			t.Errorf("%s = %s, want no value", text, got)
		}
	}
}

func TestExpressionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "column 1: want a number, a knob or a parenthesis, got the end",
		"z + 1":                                `column 1: unknown knob "z"`,
		"x +":                                  "column 4",
		"x y":                                  `column 3: unexpected "y"`,
		"(x":                                   `column 3: want ")", got the end`,
		"x $ y":                                `column 3: unexpected '$'`,
		"'a":                                   "has no end",
		"12q":                                  `"12q" is not a number`,
		"open(x)":                              `unknown function "open"`,
		"x in y":                               "want a list",
		"x not y":                              `want "in"`,
		"x is y":                               "write ==",
		"x if y":                               `want "else"`,
		"x and":                                "column 6",
		"and x":                                `column 1: want a number, a knob or a parenthesis, got "and"`,
		"x in [1 for 2 in [1]]":                "want the name of a variable",
		"x in [1 2 for i in [1]]":              "unexpected 2",
		"x in [i for i in [1]":                 `want "]"`,
		"i in [i for i in [1]]":                `unknown knob "i"`,
		strings.Repeat("(", 300):               "nested",
		strings.Repeat("-", 300):               "nested",
		strings.Repeat("not ", 300):            "nested",
		"x in " + strings.Repeat("list(", 300): "nested",
	} {
		_, err := compile(text, []string{"x", "y"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// A conjunction is split, so that the solver can check its terms one by one.
func TestConjunctions(t *testing.T) {
	for text, want := range map[string]int{
		"x > 1 and y > 1 && x < y": 3, "x and y or x": 1, "(x and y)": 1, "x if y and x else y": 1, "x in [1, 2] and y": 2,
	} {
		if terms, err := compile(text, []string{"x", "y"}); err != nil || len(terms) != want {
			t.Errorf("%s: %d terms, %v; want %d", text, len(terms), err, want)
		}
	}
}

func TestLists(t *testing.T) {
	for text, want := range map[string]string{
		"[1, 2, 4]":                             "1 2 4",
		"[]":                                    "",
		"[2**i for i in range(0, 6)]":           "1 2 4 8 16 32",
		"[1, 2] + list(range(32, 97, 32))":      "1 2 32 64 96",
		"[1] + [2 * i for i in range(1, 4)]":    "1 2 4 6",
		"sorted([3, 'a', True, 1.5])":           "3 a True 1.5",
		"[i + j for i in [j for j in range(2)]": "",
	} {
		values, err := evaluateList(text)
		var texts []string
		for _, v := range values {
			texts = append(texts, v.String())
		}
		if got := strings.Join(texts, " "); got != want || (err != nil) != (text[len(text)-1] == ']' && strings.Contains(text, "i + j")) {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"5", "[1 // 0]", "[1] 2", "'"} {
		if values, err := evaluateList(text); err == nil {
			t.Errorf("%s: %v, want an error", text, values)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, text := range []string{"x + y * 2", "32 <= x * y <= 1024", "[2**i for i in range(6)]", "x in [1, 2] + [3]", "not (x and y) or x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := compile(text, []string{"x", "y"})
		if err == nil {
			for _, e := range terms {
				env := make([]Value, e.slots)
				env[0], env[1] = Int(3), Text("a")
				e.holds(env)
			}
		}
		_, _ = evaluateList(text)
	})
}
