package crash_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/crash"
)

func fails(list []int, i int) (err error) {
	defer crash.Catch(&err, func() string { return "the test" })
	_ = list[i]
	return nil
}

func TestCatch(t *testing.T) {
	if err := fails([]int{1}, 0); err != nil {
		t.Error(err)
	}
	err := fails(nil, 3)
	var p *crash.Panic
	if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "crash_test.fails") {
		t.Fatalf("error %v", err)
	}
	want := "internal error, a defect of attune, in the test: runtime error: index out of range [3] with length 0"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if text := crash.New("one\n two", "x").Error(); strings.Contains(text, "\n") {
		t.Errorf("the message has several lines: %q", text)
	}
}

// TestGroup checks that the caller of Wait recovers the panic of a worker, with the worker's stack.
func TestGroup(t *testing.T) {
	work := func(n int) (err error) {
		defer crash.Catch(&err, func() string { return "the caller" })
		var g crash.Group
		for i := range n {
			g.Go(func() { panicsIn(i) })
		}
		g.Wait()
		return nil
	}
	if err := work(1); err != nil {
		t.Error(err)
	}
	err := work(4)
	var p *crash.Panic
	if !errors.As(err, &p) || p.Where != "the caller" || !strings.Contains(string(p.Stack), "panicsIn") {
		t.Errorf("error %v", err)
	}
}

func panicsIn(i int) {
	if i > 0 {
		panic("worker failed")
	}
}

func TestReport(t *testing.T) {
	folder := t.TempDir()
	input := filepath.Join(folder, "case.json")
	if err := os.WriteFile(input, []byte(`{"grid": [1]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var p *crash.Panic
	errors.As(fails(nil, 3), &p)
	path, err := p.Report(folder, []string{"attune 0.1.0", "command: sim"}, input, filepath.Join(folder, "nowhere.ptx"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in the test: ", "index out of range", "attune 0.1.0\ncommand: sim\n", "crash_test.fails", `{"grid": [1]}`, "nowhere.ptx: ", "time: 20"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
	if path, err := p.Report(filepath.Join(folder, "missing"), nil); err == nil || path != "" {
		t.Errorf("a report in a missing folder: %q, %v", path, err)
	}
}
