//go:build linux

package lab

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/child/childtest"
	"attune/internal/document"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/tensor"
)

// pythonScript is a python3 that is a shell script. It replies to each operation with a line, or
// not at all. $answer is a file with the correct output; a request for the output ends with the
// path for it.
func pythonScript(hello, prepare, answer, sample string) string {
	return `#!/bin/sh
cat >/dev/null
while read -r line <&3; do
	id=${line#*\"id\":}; id=${id%%,*}
	out=${line##*\"output\":\"}; out=${out%%\"*}
	case $line in
	*\"op\":\"hello\"*) ` + hello + ` ;;
	*\"op\":\"prepare\"*) ` + prepare + ` ;;
	*\"op\":\"output\"*) ` + answer + ` ;;
	*\"op\":\"sample\"*) ` + sample + ` ;;
	*) echo "{\"id\":$id}" >&4 ;;
	esac
done
`
}

const (
	repliesHello  = `echo "{\"id\":$id,\"facts\":{\"python\":\"3.12\",\"torch\":\"2.11\",\"cuda\":\"13.0\",\"gpu\":\"a fake\"}}" >&4`
	repliesOK     = `echo "{\"id\":$id}" >&4`
	repliesOutput = `cp "$answer" "$out"; echo "{\"id\":$id,\"shape\":[1,1,8,64]}" >&4`
	repliesTime   = `echo "{\"id\":$id,\"seconds\":[1e-9]}" >&4`
)

// Whatever python3 in PATH does, bench reports it in one line and has our own figures.
func TestBenchWithAnyPython(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const shape = "1x1x8x64"
	right := filepath.Join(t.TempDir(), "answer")
	values, err := oracle.Quantized(t.Context(), draw(t, shape, 0, tensor.Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, x := range values {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(float32(x)))
	}
	if err := os.WriteFile(right, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("answer", right)
	t.Setenv(peer.PythonVariable, "")
	usual := os.Getenv("PATH")
	python, noPython := exec.LookPath("python3")
	// bench runs with this script as python3 in PATH, or without one.
	bench := func(script string, limit time.Duration) ([]string, string) {
		t.Helper()
		folder := t.TempDir()
		t.Setenv("PATH", folder)
		if script != "" {
			childtest.Program(t, filepath.Join(folder, "python3"), script)
			t.Setenv("PATH", folder+string(os.PathListSeparator)+usual)
		}
		s := newSetup(t)
		r := s.bench(newPeers(t), "torch-flash", shape)
		r.Rounds = 1
		r.StartPeers = func(ctx context.Context) (Peers, error) {
			helper, err := peer.Start(ctx, peer.Options{Limit: limit})
			if err != nil {
				return nil, err
			}
			return helper, nil
		}
		b := s.benched(r)
		return document.SkippedLines(b.Skipped), brief(b)
	}
	check := func(what, script string, limit time.Duration, want string) {
		t.Helper()
		lines, rows := bench(script, limit)
		if len(lines) != 1 || !strings.Contains(lines[0], want) || strings.ContainsAny(lines[0], "\n\x1b") {
			t.Errorf("%s: %q; want one line with %q", what, lines, want)
		}
		if rows != "stage1 16 1.60x, stage2 10" {
			t.Errorf("%s: our own figures are %q", what, rows)
		}
	}
	const long, short = time.Minute, 300 * time.Millisecond
	nothing := ":"
	check("missing", "", long, "skipped: there is no python3 in PATH; to include it: install Python 3.9 or later with PyTorch")
	check("dies", "#!/bin/sh\necho 'ImportError: no luck' >&2\nexit 3\n", long, "python3 exited (exit status 3): ImportError: no luck")
	check("hangs", pythonScript(nothing, nothing, nothing, nothing), short, "did not respond within 300ms and was killed; to include it: give it more time with --peer-timeout")
	check("hangs midway", pythonScript(repliesHello, nothing, nothing, nothing), 2*time.Second, "did not respond within 2s and was killed")
	check("replies with no JSON", pythonScript(`echo "Traceback (most recent call last):" >&4`, nothing, nothing, nothing), long, "is not JSON of the expected form")
	check("is on another card", pythonScript(strings.Replace(repliesHello, "a fake", "another", 1), nothing, nothing, nothing), long, "they would run on another")
	check("claims an output", pythonScript(repliesHello, repliesOK, `echo "{\"id\":$id,\"shape\":[1,1,8,64]}" >&4`, repliesTime), long, "it wrote no output")
	check("claims a time of 0", pythonScript(repliesHello, repliesOK, repliesOutput, `echo "{\"id\":$id,\"seconds\":[0]}" >&4`), long, "it returned a time of 0 s")
	check("claims more time than passed", pythonScript(repliesHello, repliesOK, repliesOutput, `echo "{\"id\":$id,\"seconds\":[1000]}" >&4`), long, "its times cannot be used")

	// With a correct output the script is timed, and with a wrong one it is marked.
	if lines, rows := bench(pythonScript(repliesHello, repliesOK, repliesOutput, repliesTime), long); len(lines) > 0 || !strings.HasPrefix(rows, "stage1 16 1.60x, stage2 10, torch-flash 0 ") {
		t.Errorf("right: %q, %q", rows, lines)
	}
	wrong := strings.Replace(repliesOutput, `cp "$answer"`, `head -c 2048 /dev/zero >"$answer.0"; cp "$answer.0"`, 1)
	if lines, rows := bench(pythonScript(repliesHello, repliesOK, wrong, repliesTime), long); len(lines) > 0 || rows != "stage1 16 1.60x, stage2 10, torch-flash WRONG" {
		t.Errorf("wrong: %q, %q", rows, lines)
	}

	if noPython != nil {
		return
	}
	// The real helper program, with builds of PyTorch that have no CUDA or find no GPU.
	for modules, want := range map[string]string{"nocuda": "PyTorch 2.11.0+cpu is built without CUDA", "nogpu": "PyTorch 2.11.0, built for CUDA 13.0, sees no GPU"} {
		path, err := filepath.Abs(filepath.Join("..", "peer", "testdata", "python", modules))
		if err != nil {
			t.Fatal(err)
		}
		check(modules, "#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH='"+path+"' exec '"+python+"' \"$@\"\n", long, want)
	}
}
