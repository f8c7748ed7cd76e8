//go:build linux

package python

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/child/childtest"
)

// script writes a shell script that is started as Python. The program is on its standard input.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python3")
	childtest.Program(t, path, "#!/bin/sh\n"+text)
	return path
}

// start starts a script that reads the program and then runs text for each request, with its ID in
// $id.
func start(t *testing.T, text string, limit time.Duration) *Process {
	t.Helper()
	loop := "cat >/dev/null\nwhile read -r line <&3; do\nid=${line#*\\\"id\\\":}; id=${id%%[,\\}]*}\n" + text + "\ndone\n"
	p, err := Start(Options{Python: script(t, loop), Program: "a program", Dir: t.TempDir(), Env: []string{"FROM=attune"}, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

type ask struct {
	Op string `json:"op,omitempty"`
}

func TestCalls(t *testing.T) {
	p := start(t, `echo noise; echo "{\"id\":$id,\"from\":\"$FROM\",\"line\":\"$(echo "$line" | tr -d '"')\"}" >&4`, time.Minute)
	for _, c := range []struct {
		request any
		want    string
	}{{ask{"hello"}, "{id:1,op:hello}"}, {ask{}, "{id:2}"}} {
		var reply struct{ From, Line string }
		if err := p.Call(t.Context(), c.request, &reply); err != nil || reply.From != "attune" || reply.Line != c.want {
			t.Errorf("%+v, %v; want %s", reply, err, c.want)
		}
	}
	if err := p.Call(t.Context(), ask{}, nil); err != nil || p.Lost() {
		t.Errorf("without a reply: %v", err)
	}
}

// A response with an error leaves the process usable.
func TestErrorOfAResponse(t *testing.T) {
	p := start(t, `printf "%s\n" "{\"id\":$id,\"error\":\"no \\u000a luck\",\"do\":\"try \\u001b[1magain\"}" >&4`, time.Minute)
	for range 2 {
		err := p.Call(t.Context(), ask{}, nil)
		if known := new(*Error); !errors.As(err, known) || err.Error() != "no luck; try [1magain" || p.Lost() {
			t.Errorf("%v, lost %v", err, p.Lost())
		}
	}
}

func TestLosses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	long := strings.Repeat("x", 1<<16)
	for name, c := range map[string]struct {
		text, want string
		limit      time.Duration
	}{
		"dies":                 {"echo; echo ImportError: no luck; echo; exit 3", "python3 exited (exit status 3): ImportError: no luck", time.Minute},
		"ends":                 {"exit 0", "python3 exited (exit status 0)", time.Minute},
		"is killed":            {"kill -9 $$", "python3 exited (signal: killed)", time.Minute},
		"leaves a child":       {"(trap '' HUP; sleep 60) & exit 4", "python3 exited (exit status 4)", time.Minute},
		"closes its pipe":      {"exec 4>&-; read -r more <&3", "python3 closed its pipe: EOF", time.Minute},
		"hangs":                {"sleep 60", "did not respond within 300ms and was killed", 300 * time.Millisecond},
		"replies with text":    {"echo Traceback >&4", `python3 replied "Traceback", which is not JSON of the expected form`, time.Minute},
		"replies twice":        {`echo "{\"id\":$id} {}" >&4`, `which is more than one JSON value`, time.Minute},
		"replies to another":   {`echo '{"id":7}' >&4`, "python3 responded to request 7 instead of request 1", time.Minute},
		"replies with a shape": {`echo "{\"id\":$id,\"from\":3}" >&4`, "which is not JSON of the expected form", time.Minute},
		"replies too much":     {"x=" + long + "; for i in 1 2 3 4 5 6 7 8; do printf %s $x$x$x$x$x$x$x$x$x >&4; done", "python3 sent a response of more than 4194304 bytes", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.text, c.limit)
			var reply struct{ From string }
			err := p.Call(t.Context(), ask{}, &reply)
			if known := new(*Error); !errors.As(err, known) || !strings.HasSuffix(strings.TrimSuffix(err.Error(), "\n"), c.want) || !p.Lost() {
				t.Errorf("%v, lost %v; want %q", err, p.Lost(), c.want)
			}
			if p.Late() != (name == "hangs") {
				t.Errorf("late: %v", p.Late())
			}
			if err := p.Call(t.Context(), ask{}, nil); err == nil || err.Error() != "its Python was lost to an earlier failure" {
				t.Errorf("a further request: %v", err)
			}
		})
	}
}

func TestCancelledCall(t *testing.T) {
	p := start(t, "sleep 60", time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Call(ctx, ask{}, nil); !errors.Is(err, context.DeadlineExceeded) || !p.Lost() || p.Late() {
		t.Errorf("%v, lost %v, late %v", err, p.Lost(), p.Late())
	}
}

func TestProcessThatDoesNotStart(t *testing.T) {
	if _, err := Start(Options{Python: "/no/python3"}); err == nil || !strings.Contains(err.Error(), "/no/python3 does not start: ") || !strings.HasSuffix(err.Error(), UseAnother) {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	path := script(t, "")
	folder := filepath.Dir(path)
	none := t.TempDir()
	for _, c := range []struct{ requested, variable, path, want string }{
		{path, "/no", none, path},
		{"", path, none, path},
		{"", "", folder, path},
		{"", "", none, "there is no python3 in PATH; install Python 3.9 or later, or name one with --python or ATTUNE_PYTHON"},
		{"pythn", path, folder, `there is no program "pythn", which --python names; name another Python with --python or ATTUNE_PYTHON`},
		{"", "pythn", folder, `there is no program "pythn", which ATTUNE_PYTHON names; name another Python with --python or ATTUNE_PYTHON`},
	} {
		t.Setenv(Variable, c.variable)
		t.Setenv("PATH", c.path)
		found, err := Find(c.requested)
		if err != nil {
			found = err.Error()
		}
		if found != c.want {
			t.Errorf("%+v: %s", c, found)
		}
	}
}

func TestRequestThatIsNoObject(t *testing.T) {
	defer func() {
		if value := recover(); value == nil {
			t.Error("no panic")
		}
	}()
	encode(3, 1)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":1}`))
	f.Add([]byte(`{"id":1,"error":"x","do":"y"}`))
	f.Add([]byte(`{"id":1,"from":2}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var reply struct{ From string }
		failed, err := decode(line, 1, &reply)
		for _, err := range []error{err, failedError(failed)} {
			if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q", err)
			}
		}
	})
}

func failedError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A Python that hangs or fails is an error, and is not taken for one without numpy.
func TestHasNumpy(t *testing.T) {
	for _, c := range []struct {
		text, failure string
		found         bool
	}{
		{"echo noise; echo numpy True", "", true},
		{"echo numpy False", "", false},
		{"exit 1", "exit status 1", false},
		{"setsid sleep 20 & sleep 20", "did not answer within 1s", false},
	} {
		found, err := hasNumpy(t.Context(), script(t, c.text), time.Second)
		if found != c.found || (err == nil) != (c.failure == "") || err != nil && err.Error() != c.failure {
			t.Errorf("%s: %v, %v", c.text, found, err)
		}
	}
}
