package sdpa

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of docs/go.md compiles.
func TestDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the Go tool")
	}
	text, err := os.ReadFile("../docs/go.md")
	if err != nil {
		t.Skip(err) // the tests run elsewhere
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, found := strings.Cut(program, "```\n")
	if !found {
		t.Fatal("docs/go.md has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
