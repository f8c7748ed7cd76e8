package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"attune/internal/child/childtest"
	"attune/internal/device/cuda"
	"attune/internal/python"
	"attune/internal/toolchain"
)

// TestMain makes the test binary the program as well: under the name attune for the scripts, and
// with the hidden command for the program itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serverName {
		main()
	}
	if filepath.Base(os.Args[0]) != "attune" {
		os.Unsetenv("GITHUB_ACTIONS") // scripts set it where they want it
	}
	testscript.Main(m, map[string]func(){"attune": main})
}

func TestScripts(t *testing.T) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	broken, brokenErr := filepath.Abs("../../internal/lab/testdata/broken") // a kernel with a stage for each way to be wrong
	cases, casesErr := filepath.Abs("../../internal/cases/testdata")
	buildsErr := os.MkdirAll(filepath.Join(cacheDir, "builds"), 0o755)
	if err := errors.Join(brokenErr, casesErr, buildsErr); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// The cache is empty, so there is no compiler. Scripts that need one link to the
			// installed one, and those that are not about builds to the builds of the machine.
			env.Setenv("ATTUNE_CACHE", env.Getenv("WORK")+"/cache")
			env.Setenv("INSTALLED", cacheDir)
			env.Setenv("BROKEN", broken)
			env.Setenv("KERNELS", filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(broken)))), "kernels"))
			env.Setenv("CHEATS", filepath.Join(filepath.Dir(broken), "cheats"))
			env.Setenv("COLUMNS", "300") // so that the scripts can match whole lines
			env.Setenv("CASES", cases)
			env.Setenv("DECLARED", filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(broken))), "problem/declared/testdata"))
			env.Setenv("TUNED", filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(broken))), "tuner/testdata/tuned"))
			if path := numpy(); path != "" { // itself: a shim of the machine may need a home
				env.Setenv("ATTUNE_PYTHON", path)
			}
			return nil
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "compiler": // the pinned one is installed, and not left out by -short
				if testing.Short() {
					return false, nil
				}
				_, err := toolchain.Installed(t.Context(), cacheDir)
				return err == nil, nil
			case "nvcc": // the machine has another compiler
				_, err := toolchain.Find(t.Context(), t.TempDir())
				return err == nil, nil
			case "numpy": // for references in Python
				return numpy() != "", nil
			case "gpu":
				machine, err := cuda.Open(0)
				if err != nil {
					return false, nil
				}
				return true, machine.Close()
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "keys": keys, "measured": measured, "benched": benched, "program": program, "awaits": awaits},
	})
}

// numpy is the path of a Python with numpy, or empty.
var numpy = sync.OnceValue(func() string {
	path, err := python.Find("")
	if err != nil {
		return ""
	}
	executable, err := exec.Command(path, "-c", "import sys, numpy; print(sys.executable)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(executable))
})

// exits CODE program args... runs a program and expects this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// awaits FILE REGEXP VARIABLE waits until a background program has written a text, and sets a variable to
// its first group.
func awaits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: awaits FILE REGEXP VARIABLE")
	}
	wanted, err := regexp.Compile(args[1])
	ts.Check(err)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(ts.MkAbs(args[0])) // the program may not have made it yet
		if found := wanted.FindSubmatch(text); found != nil {
			ts.Setenv(args[2], string(found[1]))
			return
		}
	}
	ts.Fatalf("%s has no %s: %s", args[0], args[1], ts.ReadFile(args[0]))
}

// program FILE makes a file of the script executable. It is written again, since the package
// testscript writes while other scripts start processes.
func program(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: program FILE")
	}
	text, path := []byte(ts.ReadFile(args[0])), ts.MkAbs(args[0])
	ts.Check(os.Remove(path)) // a child may have the old file open
	ts.Check(childtest.Write(func() error { return os.WriteFile(path, text, 0o755) }))
}

// keys FILE KEY... looks for keys in a JSON document, such as runs.0.gates.profile.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] keys FILE KEY...")
	}
	var document any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &document))
	for _, key := range args[1:] {
		if found := has(document, strings.Split(key, ".")); found == neg {
			ts.Fatalf("key %s: found is %t", key, found)
		}
	}
}

func has(document any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	switch value := document.(type) {
	case map[string]any:
		under, ok := value[path[0]]
		return ok && has(under, path[1:])
	case []any:
		index, err := strconv.Atoi(path[0])
		return err == nil && index < len(value) && has(value[index], path[1:])
	}
	return false
}
