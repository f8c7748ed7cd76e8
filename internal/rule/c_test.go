package rule

import (
	"strings"
	"testing"
)

// declared has names with the ranges of a shape's properties.
func declared() (*C, []string) {
	c := &C{}
	names := []string{"heads", "queries", "keys", "causal"}
	for i, limits := range []Interval{Between(1, 1<<31), Between(1, 1<<24), Between(1, 1<<24), Between(0, 1)} {
		c.Declare("s->"+names[i], limits)
	}
	return c, names
}

func condition(text string) (string, error) {
	c, names := declared()
	r, wrong := Parse(text, Vocabulary{Names: names})
	if len(wrong) > 0 {
		return "", wrong[0]
	}
	return c.Condition(r)
}

func number(text string) (string, error) {
	c, names := declared()
	r, wrong := Parse(text, Vocabulary{Names: names})
	if len(wrong) > 0 {
		return "", wrong[0]
	}
	code, _, err := c.Number(r)
	return code, err
}

// A rule that C could compute differently is refused, with its column and the reason.
func TestRefusedRules(t *testing.T) {
	for text, want := range map[string]string{
		"heads * queries * keys":        "column 1: the integer may exceed 64 bits",
		"9223372036854775808 > heads":   "column 1: the integer may exceed 64 bits",
		"heads // (keys - queries)":     "column 1: the divisor may be 0: it is from -16777215 to 16777215",
		"heads % causal":                "the divisor may be 0",
		"heads / causal":                "the divisor may be 0",
		"heads % (causal + 0.5)":        "",
		"(heads > 1) + 1":               "a boolean + an integer",
		"-(heads > 1)":                  "- of a boolean",
		"abs(heads > 1)":                "abs of a boolean",
		"min(heads)":                    "min of 1 arguments",
		"min(heads, 1.5)":               "min of an integer and a float",
		"len(heads)":                    "no part of a rule",
		"(causal or heads > 1) + 1":     "a boolean or an integer + an integer",
		"(heads > 1) == 1":              "compares a boolean with an integer",
		"(heads if causal else 0.5)":    "the value is an integer or a float",
		"(heads and 0.5) > 1":           "the value is a float or an integer",
		"heads * queries > 0.5":         "compares a float with an integer that may exceed 2^53",
		"1e300 * 1e300":                 "the float may overflow",
		"heads << keys":                 "the shift count is from 1 to 16777216; want 0 to 62",
		"heads >> (causal - 1)":         "the shift count is from -1 to 0",
		"heads | 0.5":                   "a float | a float",
		"warps > 1":                     `unknown name "warps"`,
		"heads in keys":                 "column 10: no part of a rule",
		"'a'":                           "no part of a rule",
		"[heads]":                       "no part of a rule",
		"heads >":                       "column 8",
		"heads > 1 and (1 if warps)":    "column 18",
		"warps in (1, 2)":               `unknown name "warps"`,
		"(1 if warps else 2)":           `unknown name "warps"`,
		"(1 if causal else warps)":      `unknown name "warps"`,
		"(warps if causal else 1)":      `unknown name "warps"`,
		"max(1, warps)":                 `unknown name "warps"`,
		"max(warps, 1)":                 `unknown name "warps"`,
		"-warps":                        `unknown name "warps"`,
		"warps and 1":                   `unknown name "warps"`,
		"(warps and 1) + 1":             `unknown name "warps"`,
		"warps + 1":                     `unknown name "warps"`,
		"not warps":                     `unknown name "warps"`,
		"heads in ()":                   "",
		"heads not in [1, 2]":           "",
		"abs(0.5 - heads) > 2.5":        "",
		"abs(-2.5) > 2.5":               "",
		"(heads > 1) < (keys > 1)":      "",
		"abs(-5 - heads) > 1 or 5 & -3": "",
	} {
		_, err := condition(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: the error is %v, want %q in it", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"keys / 2": "its value is a float; want a boolean or an integer", "keys /": "column 7", "warps": "unknown name",
	} {
		if _, err := number(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as a number: the error is %v, want %q in it", text, err, want)
		}
	}
}
