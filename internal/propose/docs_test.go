package propose

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"attune/internal/spec"
)

var docBlock = regexp.MustCompile("(?ms)^```\\w+ (file|from)=(\\S+)\n(.*?)^```$")

const elided = "…" // stands for the rest of a text

// The session of docs/proposers.md is one that the program has: the messages of attune are those that
// it sends, and the answers are understood as the document says.
func TestSessionOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/proposers.md")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"reference.py": {Data: []byte("\n")}}
	var sent, answers []string
	for _, m := range docBlock.FindAllStringSubmatch(string(text), -1) {
		switch m[2] {
		case "attune":
			sent = append(sent, m[3])
		case "program":
			answers = append(answers, compact(t, m[3]))
		default:
			files[m[2]] = &fstest.MapFile{Data: []byte(m[3])}
		}
	}
	if len(sent) != 3 || len(answers) != 2 {
		t.Fatalf("the document has %d messages of attune and %d of the program", len(sent), len(answers))
	}
	kernel, err := spec.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := kernel.Shapes("small")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "heard")
	p := New(Options{Command: program(t, "hear", append([]string{log}, answers...)...)}, Subject{
		Kernel: kernel, Default: kernel.Stages[0].Variant(), Objective: "time", Shapes: shapes, Folder: files,
		Sources: map[string][]byte{"scale.cu": files["scale.cu"].Data},
	})
	defer p.Close()
	replay(t, p, sent[1:])
	heard, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(heard), "\n"), "\n")
	if len(lines) != len(sent) {
		t.Fatalf("attune sends %d messages", len(lines))
	}
	for i, want := range sent {
		if diff := cmp.Diff(parsed(t, want), parsed(t, lines[i]), cmp.Comparer(sameText)); diff != "" {
			t.Errorf("message %d (-document +sent):\n%s", i+1, diff)
		}
	}
}

// replay asks the program with the states of the document and reports the results that they have.
func replay(t *testing.T, p *Proposer, states []string) {
	t.Helper()
	for i, text := range states {
		var message struct {
			State
			Last []Result
		}
		if err := json.Unmarshal([]byte(text), &message); err != nil {
			t.Fatal(err)
		}
		for _, r := range message.Last {
			if r.Stage != refusedStage { // refusals are the proposer's own
				if err := p.Report(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		candidates, err := p.Ask(t.Context(), message.State)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && (len(candidates) != 2 || candidates[1].Patch != 1 || candidates[1].Variant.String() != "scale+THREADS=256") {
			t.Errorf("the program proposes %+v", candidates)
		}
	}
	if !p.Ended() {
		t.Error("the program is not done")
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// sameText compares texts of which the document may leave out the end.
func sameText(a, b string) bool {
	begins := func(short, long string) bool {
		beginning, isElided := strings.CutSuffix(short, elided)
		return isElided && strings.HasPrefix(long, beginning)
	}
	return a == b || begins(a, b) || begins(b, a)
}
