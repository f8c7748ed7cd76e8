package run

import (
	"os/exec"
	"testing"
)

// A quoted word is one word of a shell, and nothing in it is a command.
func TestShellWord(t *testing.T) {
	for _, word := range []string{"stage2+TILE_N=32", "1x8x512x64:causal,kv=5", "a b", "", "it's", "$(touch x)", "`x`", "a;b|c&d", "-rf *", "\"\\", "ü"} {
		out, err := exec.Command("sh", "-c", "printf '%s|' "+ShellWord(word)).Output()
		if err != nil || string(out) != word+"|" {
			t.Errorf("%q is quoted as %s, which a shell reads as %q, %v", word, ShellWord(word), out, err)
		}
	}
	if got := ShellWord("stage2+TILE_N=32"); got != "stage2+TILE_N=32" {
		t.Errorf("a plain word is quoted: %s", got)
	}
	r := &Run{Variant: "a; rm -rf b"}
	r.Requested.Shapes = []string{"n=1"}
	if got := r.Command(); got != "attune run 'a; rm -rf b' --shapes n=1 --seeds " {
		t.Errorf("the command of a record is %s", got)
	}
}
