package tune

import (
	"strings"
	"testing"

	"attune/internal/rule"
)

// evaluate evaluates an expression over x = 6, y = 4, s = "a", f = 0.5, b = True, load = 7.
func evaluate(text string) (rule.Value, error) {
	values := []rule.Value{rule.Int(6), rule.Int(4), rule.Text("a"), rule.Real(0.5), rule.Bool(true), rule.Int(7)}
	var knobs []Knob
	for i, name := range []string{"x", "y", "s", "f", "b", "load"} {
		knobs = append(knobs, Knob{Name: name, Values: values[i : i+1]})
	}
	terms, err := parsePython(text, knobs)
	if err != nil {
		return rule.Value{}, err
	}
	var v rule.Value
	for _, r := range terms {
		if v = r.Eval(values); v.Err() != nil || !v.Truth() {
			break
		}
	}
	return v, v.Err()
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
		"2 ** 64":                             "18446744073709551616",
		"9223372036854775807 + 1":             "9223372036854775808",
		"-9223372036854775807 - 2":            "-9223372036854775809",
		"4611686018427387904 * 4":             "18446744073709551616",
		"1 << 70":                             "1180591620717411303424",
		"int(1e30)":                           "1000000000000000019884624838656",
		"-x ** 2 ** -1 * 2":                   "-4.898979485566356",
		"12 / y ** 2 * x // 2":                "2.0",
		"b + 1":                               "2",
		"b == 1 and x":                        "6",
		"(x < y) + (x > y) * 2":               "2",
		"sum([x > y, b])":                     "2",
		"1 in [b]":                            "True",
		"not x < y < 9":                       "True",
		"x | 1 < 8 in [8, 1]":                 "True",
		"load + x":                            "13",
		"x ==\n 6":                            "True",
		"'<' == '\\'":                         "False",
		"min([x])":                            "6",
		"all([x * i for i in [1, 2]])":        "True",
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
		if got, err := evaluate(text); got.String() != want || err != nil {
			t.Errorf("%s = %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestExpressionsWithoutValue(t *testing.T) {
	for _, text := range []string{
		"x // 0", "x % 0", "x / 0", "1.5 // 0", "1.5 % 0", "s + 1", "s < 1", "1 >> -1", "f | 1", "abs(s)", "min([])", "max(s, x)",
		"log(0)", "not x // 0", "x // 0 == 1", "1 == x // 0", "x // 0 in [1]", "x in [1 // 0]", "x in [i // 0 for i in [1]]",
		"x in [1 for i in [1 // 0]]", "x in [1 for i in [1] if 1 // 0]", "1 if x // 0 else 2", "1 + x // 0", "x // 0 + 1", "abs(1 // 0)", "sum([1 // 0])",
		"x in range(0, 5, 0)", "x in range(1.5)", "x in range()", "x in range(1 // 0)", "x in range(1000000)", "x in [1] + [1 // 0]",
		"x in [1 // 0] + [1]", "x in list(range(60000)) + list(range(60000))", "sum(['a'])",
	} {
		if got, err := evaluate(text); err == nil && got.Truth() {
			t.Errorf("%s = %s, want no value", text, got)
		}
	}
}

func TestExpressionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "column 1: got end of file, want primary expression",
		"z + 1":                              `column 1: unknown knob "z"`,
		"x == 1 and x ** 2 == z":             `column 22: unknown knob "z"`,
		"x +":                                "column 4",
		"x >":                                "column 4",
		"x y":                                "column 4: got identifier after expression",
		"(x":                                 "column 3: got end of file, want ')'",
		"x $ y":                              `column 3: unexpected input character '$'`,
		"'a":                                 "column 1: unexpected EOF in string",
		"12q":                                "got identifier after expression",
		"open(x)":                            `column 1: unknown function "open"`,
		"x.real":                             "column 1: want a number, a knob or a parenthesis",
		"max(x, key=y)":                      "column 8: want a number, a knob or a parenthesis",
		"max(*x)":                            "column 5: want a number, a knob or a parenthesis",
		"abs(x, y)":                          "column 1: abs of 2 arguments",
		"x in y":                             "want a list",
		"x in [1] == 2":                      "want a list",
		"x not y":                            "want in",
		"x is y":                             "got is after expression",
		"x if y":                             "without else clause",
		"x and":                              "column 6",
		"and x":                              `column 1: got and, want primary expression`,
		"x in [1 for 2 in [1]]":              "want a list with one variable",
		"x in [1 for i in [1] for j]":        "got ']', want in",
		"x in [1 2 for i in [1]]":            "got int literal, want ']'",
		"x in [i for i in [1]":               `want ']'`,
		"i in [i for i in [1]]":              `column 1: unknown knob "i"`,
		"x in [i for i in [y]]":              `column 19: unknown knob "y"`,
		"x in [i for i in [1] if y]":         `column 25: unknown knob "y"`,
		"x in [1 for i in [1] for j in [1]]": "want a list with one variable",
		"x in [1 for i in range(40000)] + list(range(9**5))": "a list has more than 65536 values",
		strings.Repeat("x + ", 20000) + "x":                  "has 80001 bytes; at most 65536 are supported",
		strings.Repeat("x + ", 600) + "x":                    "has 1201 operations and names; at most 1000 are supported",
		strings.Repeat("(", 300):                             "nesting",
		strings.Repeat("-", 3000):                            "nesting",
		strings.Repeat("not ", 3000):                         "nesting",
		"x in " + strings.Repeat("list(", 300):               "nesting",
	} {
		_, err := parsePython(text, []Knob{ints("x", 1), ints("y", 1)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// A conjunction is split, so that the solver can check its terms one by one.
func TestConjunctions(t *testing.T) {
	for text, want := range map[string]int{
		"x > 1 and y > 1 && x < y": 3, "x and y or x": 1, "(x and y)": 1, "1 < x < 3 and y": 2, "x if y and x else y": 1, "x in [1, 2] and y": 2,
	} {
		if terms, err := parsePython(text, []Knob{ints("x", 1), ints("y", 1)}); err != nil || len(terms) != want {
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
		terms, err := parsePython(text, []Knob{ints("x", 1), ints("y", 1)})
		if err == nil {
			for _, r := range terms {
				r.Holds([]rule.Value{rule.Int(3), rule.Text("a")})
			}
		}
		_, _ = evaluateList(text)
	})
}
