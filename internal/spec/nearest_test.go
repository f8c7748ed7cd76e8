package spec

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"stage1", "stage2", "name", "layer", "USE_XOR_SWIZZLE", "USE_CP_ASYNC", "größe"}
	check := func(word, want string) {
		t.Helper()
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q; want %q", word, got, want)
		}
	}
	check("layer", "layer")
	check("laier", "layer")             // one letter replaced
	check("lyer", "layer")              // one missing
	check("layyer", "layer")            // one too many
	check("alyer", "layer")             // two swapped
	check("LAYER", "layer")             // another case
	check("stag2", "stage2")            // nearer than the first
	check("stage", "stage1")            // equally near to both: the first
	check("USE_XOR", "USE_XOR_SWIZZLE") // a prefix
	check("use_cp", "USE_CP_ASYNC")
	check("GRÖSSE", "größe") // letters, not bytes
	check("US", "")          // too short for a prefix
	check("nmea", "")        // two swaps in four letters are too far
	check("tolerance", "")
	check("", "")
	if got := Nearest("x", nil); got != "" {
		t.Errorf("Nearest without words is %q", got)
	}
}

func TestDistance(t *testing.T) {
	check := func(a, b string, want int) {
		t.Helper()
		if got := distance([]rune(a), []rune(b)); got != want {
			t.Errorf("distance(%q, %q) = %d; want %d", a, b, got, want)
		}
		if got := distance([]rune(b), []rune(a)); got != want {
			t.Errorf("distance(%q, %q) = %d; want %d", b, a, got, want)
		}
	}
	check("", "", 0)
	check("", "abc", 3)
	check("kitten", "sitting", 3)
	check("abcd", "acbd", 1)
	check("ca", "abc", 3) // swapped letters are not edited again
}

func TestHint(t *testing.T) {
	check := func(word string, words []string, want string) {
		t.Helper()
		if got := hint(word, words); got != want {
			t.Errorf("hint(%q) = %q; want %q", word, got, want)
		}
	}
	check("stag1", []string{"stage0", "stage1"}, `; did you mean "stage1"?`)
	check("other", []string{"stage0", "stage1"}, "; there are stage0, stage1")
	check("other", nil, "; there are none")
}
